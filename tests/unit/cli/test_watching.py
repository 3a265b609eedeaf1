"""--watch and --wait: looks that events cause, on a server whose events a test lets happen."""

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from roost.base.errors import Forbidden
from roost.cli.main import app
from roost.cli.watch.following import follow, newest_sequence
from roost.client import AsyncClient
from roost.wire import bodies as b
from tests.unit.client.bodies import event, vm
from tests.unit.client.canned import CannedServer, Reply, Seen, error

SIZE = ("--cpu", "2", "--memory", "4GiB")


class Scene:
    """A server with one VM; `happens` changes it and tells of it."""

    def __init__(self, server: CannedServer) -> None:
        self.server = server
        self.vm = vm(state="starting")
        self.sequence = 40
        self._told: queue.Queue[int | None] = queue.Queue()
        server.on("POST", "/api/v1/vms", lambda _: Reply(201, self.vm))
        server.on("GET", f"/api/v1/vms/{self.vm.id}", lambda _: self.vm)
        server.on("GET", "/api/v1/vms/web-1", lambda _: self.vm)
        server.on("GET", "/api/v1/vms", lambda _: b.VMPage(vms=[self.vm]))
        server.on("GET", "/api/v1/events", self._events)

    def happens(self, **changes: Any) -> None:
        self.vm = msgspec.structs.replace(self.vm, **changes)
        self.sequence += 1
        self._told.put(self.sequence)

    def ends(self) -> None:
        self._told.put(None)

    def _events(self, seen: Seen) -> Any:
        if seen.headers["accept"] == "text/event-stream":
            return Reply(stream=self._stream())
        assert dict(seen.query) == {"last": "1"}
        return b.EventPage(events=[event(self.sequence)], next=self.sequence)

    def _stream(self) -> Iterator[str]:
        yield ": hello\n\n"
        while (sequence := self._told.get(timeout=20)) is not None:
            yield f"data: {msgspec.json.encode(event(sequence)).decode()}\n\n"


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOST_OUTPUT", raising=False)
    with CannedServer() as server:
        monkeypatch.setenv("ROOST_SERVER", server.url)
        monkeypatch.setenv("ROOST_TOKEN", "t")
        made = Scene(server)
        yield made
        made.ends()


@pytest.mark.parametrize("count", [0, 1000])
def test_the_newest_sequence_is_found_without_reading_all(count: int) -> None:
    def page(seen: Seen) -> b.EventPage:
        assert dict(seen.query) == {"last": "1"}
        return b.EventPage(events=[event(count)] if count else [], next=count)

    async def ask(url: str) -> int:
        async with AsyncClient(url) as client:
            return await newest_sequence(client)

    with CannedServer() as server:
        server.on("GET", "/api/v1/events", page)
        assert asyncio.run(ask(server.url)) == count
        assert len(server.requests) == 1


def test_every_event_causes_a_look_and_quiet_none(scene: Scene) -> None:
    states: list[str] = []

    def seen(body: b.VMBody) -> bool:
        states.append(body.state)
        following = {"starting": "stopping", "stopping": "stopped"}.get(body.state)
        if following is not None:
            scene.happens(state=following)
        return following is None

    async def watch() -> None:
        async with AsyncClient(scene.server.url) as client:
            await follow(client, lambda c: c.get_vm("web-1"), seen, timeout_s=20)

    asyncio.run(watch())
    assert states == ["starting", "stopping", "stopped"]
    assert len(scene.server.asked("GET", "/api/v1/vms/web-1")) == 3


def test_a_server_that_goes_away_meanwhile_is_waited_for(scene: Scene) -> None:
    path = "/api/v1/vms/web-1"

    def seen(body: b.VMBody) -> bool:
        if body.state == "starting":
            away = error(500, "unavailable", "restarting")
            scene.server.on("GET", path, away, lambda _: scene.vm)
            scene.happens(state="running")
        return body.state == "running"

    async def watch() -> b.VMBody:
        async with AsyncClient(scene.server.url) as client:
            return await follow(client, lambda c: c.get_vm("web-1"), seen, timeout_s=20)

    assert asyncio.run(watch()).state == "running"
    assert len(scene.server.asked("GET", path)) == 3


def test_a_watch_ends_when_events_are_forbidden(scene: Scene) -> None:
    def events(seen: Seen) -> Any:
        if seen.headers["accept"] == "text/event-stream":
            return error(403, "forbidden", "not for you")
        return b.EventPage(events=[], next=0)

    scene.server.on("GET", "/api/v1/events", events)

    async def watch() -> None:
        async with AsyncClient(scene.server.url) as client:
            await follow(client, lambda c: c.get_vm("web-1"), lambda _: False, timeout_s=20)

    with pytest.raises(Forbidden, match="not for you"):
        asyncio.run(watch())


def test_create_and_wait_tells_of_every_state_until_it_runs(scene: Scene) -> None:
    def once(_: Seen) -> Reply:
        scene.happens(state="running")
        return Reply(201, msgspec.structs.replace(scene.vm, state="starting"))

    scene.server.on("POST", "/api/v1/vms", once)
    result = CliRunner().invoke(app, ["vm", "create", "web-1", *SIZE, "--wait"])
    assert result.exit_code == 0, result.output
    assert "web-1 is on h1" in result.stdout
    assert "web-1 is running on h1" in result.stdout
    assert result.output.count("web-1 is running on h1") == 1  # its answer, and no note besides


def test_create_and_wait_ends_when_it_failed(scene: Scene) -> None:
    problem = b.ProblemBody(code="boot_failed", message="no such image", generation=1)
    scene.happens(state="failed", problem=problem)
    result = CliRunner().invoke(app, ["vm", "create", "web-1", *SIZE, "--wait", "-o", "json"])
    assert result.exit_code == 5
    assert "no such image" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [("start", "stopped", "running"), ("stop", "running", "stopped"),
     ("restart", "running", "running")],
)  # fmt: skip
def test_a_change_of_power_is_waited_for_and_what_was_before_does_not_count(
    scene: Scene, command: str, before: str, after: str
) -> None:
    def asked(_: Seen) -> Reply:
        scene.happens(state=before, generation=5, observed_generation=4)
        answer = scene.vm
        scene.happens(state=after, observed_generation=4 if before == after else 5)
        scene.happens(state=after, observed_generation=5)
        return Reply(202, answer)

    scene.server.on("POST", f"/api/v1/vms/web-1/{command}", asked)
    result = CliRunner().invoke(app, ["vm", command, "web-1", "--wait", "-o", "json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["state"], told["observed_generation"]) == (after, 5)


def test_waiting_has_an_end(scene: Scene) -> None:
    arguments = ["vm", "create", "web-1", *SIZE, "--wait", "--timeout", "1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 5
    assert "still starting after 1 s" in result.stderr
    assert "roost vm show web-1 --watch" in result.stderr


def test_a_watch_prints_a_line_for_every_change_and_ends_quietly(scene: Scene) -> None:
    command = [
        sys.executable,
        "-m",
        "roost.cli.main",
        "vm",
        "show",
        "web-1",
        "--watch",
        "-o",
        "json",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert json.loads(process.stdout.readline())["state"] == "starting"
            scene.happens(state="running")
            assert json.loads(process.stdout.readline())["state"] == "running"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
