"""`roost vm migrate`: what is sent, how a move is watched, and with which code it ends."""

import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from roost.cli.main import app
from roost.cli.show import listings
from roost.cli.watch import movewatch
from roost.wire import bodies as b
from tests.unit.client.bodies import event, vm
from tests.unit.client.canned import CannedServer, Reply, Seen, error

MIB = 2**20
MIGRATE = "/api/v1/vms/web-1/migrate"
CANCEL = "/api/v1/vms/web-1/cancel-migration"


def move(phase: str = "moving", **more: Any) -> b.MigrationBody:
    return b.MigrationBody(source="h1", target="h2", phase=phase, **more)


def progress(sent: int, left: int, **more: Any) -> b.ProgressBody:
    return b.ProgressBody(sent_bytes=sent * MIB, left_bytes=left * MIB, **more)


class Scene:
    """A server with one VM; every look at it lets the next step of a script happen."""

    def __init__(self, server: CannedServer) -> None:
        self.server = server
        self.vm = vm(virtual=False)
        self.script: list[tuple[str, str, dict[str, Any]]] = []
        self.before: list[tuple[str, str]] = []  # told before the move begins
        self._sequence = 40
        self._told: queue.Queue[b.EventBody | None] = queue.Queue()
        server.on("POST", MIGRATE, self._begin)
        server.on("POST", CANCEL, self._cancel)
        server.on("GET", f"/api/v1/vms/{self.vm.id}", self._look)
        server.on("GET", "/api/v1/events", self._events)

    def tell(self, kind: str, note: str = "", subject: str = "") -> None:
        self._sequence += 1
        about = subject or f"vm/{self.vm.id}"
        self._told.put(event(self._sequence, kind=kind, subject=about, note=note, changes={}))

    def ends(self) -> None:
        self._told.put(None)

    def _change(self, **changes: Any) -> None:
        self.vm = msgspec.structs.replace(self.vm, **changes)

    def _begin(self, _: Seen) -> Reply:
        for kind, note in self.before:
            self.tell(kind, note)
        self._change(state="migrating", migration=move("preparing"))
        self.tell("vm.move_begun")
        return Reply(202, self.vm)

    def _cancel(self, _: Seen) -> Reply:
        self._change(state="migrating", migration=move("cancelling"))
        self.tell("vm.move_cancel_asked")
        return Reply(202, self.vm)

    def _look(self, _: Seen) -> b.VMBody:
        seen = self.vm
        if self.script:
            kind, note, changes = self.script.pop(0)
            self._change(**changes)
            if kind:
                self.tell("vm.moved", subject="vm/another")  # nobody's business here
                self.tell(kind, note)
        return seen

    def _events(self, seen: Seen) -> Any:
        if seen.headers["accept"] == "text/event-stream":
            return Reply(stream=self._stream())
        return b.EventPage(events=[], next=0)

    def _stream(self) -> Iterator[str]:
        while (told := self._told.get(timeout=20)) is not None:
            yield f"data: {msgspec.json.encode(told).decode()}\n\n"


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    monkeypatch.chdir(tmp_path)
    for name in ("ROOST_OUTPUT", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with CannedServer() as server:
        monkeypatch.setenv("ROOST_SERVER", server.url)
        monkeypatch.setenv("ROOST_TOKEN", "t")
        made = Scene(server)
        yield made
        made.ends()


def migrate(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["vm", "migrate", "web-1", *arguments])
    assert result.exit_code == code, result.output
    return result


MOVED: tuple[str, str, dict[str, Any]] = (
    "vm.moved", "", {"state": "running", "host": "h2", "migration": None},
)  # fmt: skip
STAYED: tuple[str, str, dict[str, Any]] = (
    "vm.move_abandoned", "it did not end within 60 s", {"state": "running", "migration": None},
)  # fmt: skip


# What is sent


def test_without_options_the_strategy_chooses(scene: Scene) -> None:
    assert "web-1 moves from h1 to h2 (preparing)" in migrate().stdout
    assert scene.server.requests[0].json == {}


@pytest.mark.parametrize("option", ["--to", "--host"])
def test_a_host_can_be_named_in_two_ways(scene: Scene, option: str) -> None:
    migrate(option, "h2")
    assert scene.server.requests[0].json == {"host": "h2"}


def test_every_option_is_sent(scene: Scene) -> None:
    migrate(
        "--to", "h2", "--bandwidth", "100MiB", "--downtime", "300", "--post-copy",
        "--no-auto-converge", "--limit", "60", "--project", "shop",
    )  # fmt: skip
    [seen] = scene.server.requests
    assert seen.query == [("project", "shop")]
    assert seen.json == {
        "host": "h2", "bandwidth": 100 * MIB, "downtime_ms": 300, "post_copy": True,
        "auto_converge": False, "limit_s": 60,
    }  # fmt: skip
    migrate("--cold", "--bandwidth", "1GiB/s")
    assert scene.server.requests[1].json == {"cold": True, "bandwidth": 1024 * MIB}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--cancel", "--to", "h2"), "--cancel"),
        (("--cancel", "--host", "h2"), "--cancel"),
        (("--cancel", "--cold"), "--cancel"),
        (("--cancel", "--limit", "5"), "--cancel"),
        (("--cold", "--post-copy"), "--post-copy"),
        (("--cold", "--downtime", "5"), "--downtime"),
        (("--cold", "--no-auto-converge"), "--no-auto-converge"),
        (("--bandwidth", "100Mb"), "Maybe 100MiB or 100MB?"),
        (("--bandwidth", "0"), "would never end"),
        (("--downtime", "0"), "--downtime"),
        (("--limit", "86401"), "--limit"),
    ],
)
def test_what_makes_no_sense_is_refused_before_it_is_sent(
    scene: Scene, arguments: tuple[str, ...], says: str
) -> None:
    assert says in migrate(*arguments, code=2).output
    assert scene.server.requests == []


def test_a_move_can_be_called_off(scene: Scene) -> None:
    assert "the move to h2 is being called off" in migrate("--cancel").stdout
    scene.server.on("POST", CANCEL, error(409, "conflict", "VM 'web-1' does not move"))
    assert "does not move" in migrate("--cancel", code=4).stderr


# Waiting


def test_waiting_tells_how_far_it_is_until_it_has_moved(scene: Scene) -> None:
    scene.script = [
        ("vm.move_progress", "", {"migration": move(progress=progress(100, 28))}),
        ("vm.move_progress", "", {"migration": move(progress=progress(
            140, 2, dirty_bytes_per_s=5 * MIB, passes=2, throttle_percent=20, downtime_ms=41))}),
        MOVED,
    ]  # fmt: skip
    result = migrate("--wait")
    assert "web-1 has moved to h2; it stood still for 41 ms" in result.stdout
    lines = [" ".join(line.split()) for line in result.stderr.splitlines()]
    assert lines[0] == "web-1: h1 to h2 (preparing)"
    told = " ".join(lines)
    assert "h1 to h2 (moving): 100 MiB sent, 28 MiB left" in told
    assert (
        "140 MiB sent, 2 MiB left, 5 MiB/s written anew, pass 2, slowed down by 20%, stood still"
    ) in told


def test_several_are_waited_for_and_one_that_fails_is_told_beside_them(scene: Scene) -> None:
    scene.script = [MOVED]
    scene.server.on("POST", "/api/v1/vms/x/migrate", error(409, "conflict", "VM 'x' waits"))
    result = CliRunner().invoke(app, ["vm", "migrate", "x", "web-1", "--wait"])
    assert result.exit_code == 4, result.output
    assert result.stdout == "web-1 has moved to h2\n"
    assert "x: VM 'x' waits" in result.stderr
    assert "1 of 2 done, 1 failed" in result.stderr


def test_waiting_on_a_terminal_draws_a_bar(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    scene.script = [
        ("vm.move_progress", "", {"migration": move(progress=progress(100, 28))}),
        ("vm.move_progress", "", {"migration": move(progress=progress(127, 1))}),
        MOVED,
    ]
    result = migrate("--wait")
    assert "has moved to h2" in result.stdout
    assert "━" in result.stderr


def test_waiting_for_a_vm_that_stays_ends_with_four_and_says_why(scene: Scene) -> None:
    scene.script = [STAYED]
    assert "stays on h1: it did not end within 60 s" in migrate("--wait", code=4).stderr


def test_waiting_as_json_gives_the_vm_or_the_reason(scene: Scene) -> None:
    scene.script = [MOVED]
    assert json.loads(migrate("--wait", "-o", "json").stdout)["host"] == "h2"


def test_a_reason_as_json_is_in_the_details(scene: Scene) -> None:
    scene.script = [STAYED]
    found = json.loads(migrate("--wait", "-o", "json", code=4).stdout)["error"]
    assert found["code"] == "conflict"
    assert found["details"] == {
        "vm": "web-1", "host": "h1", "moved": False, "reason": "it did not end within 60 s",
    }  # fmt: skip


def test_the_end_of_an_earlier_move_is_not_taken_for_this_ones(scene: Scene) -> None:
    scene.before = [("vm.move_abandoned", "an earlier one")]
    scene.script = [("vm.move_progress", "", {}), MOVED]
    assert "has moved to h2" in migrate("--wait").stdout


@pytest.mark.parametrize(("host", "code"), [("h2", 0), ("h1", 4)], ids=["moved", "stayed"])
def test_an_end_that_no_event_told_is_seen_by_the_host(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, host: str, code: int
) -> None:
    monkeypatch.setattr(movewatch, "_LOOK_S", 0.05)
    monkeypatch.setattr(movewatch, "_LAST_WORD_S", 0.1)
    scene.script = [("", "", {"state": "running", "host": host, "migration": None})]
    migrate("--wait", code=code)


def test_a_vm_that_is_deleted_meanwhile_is_a_conflict(scene: Scene) -> None:
    scene.script = [("vm.delete_asked", "", {"state": "deleting", "migration": None})]
    assert "was deleted meanwhile" in migrate("--wait", code=4).stderr


def test_a_server_that_is_away_meanwhile_is_waited_for(scene: Scene) -> None:
    path = f"/api/v1/vms/{scene.vm.id}"
    scene.script = [MOVED]
    scene.server.on("GET", path, error(503, "unavailable", "restarting"), scene._look)
    assert "has moved to h2" in migrate("--wait").stdout


def test_waiting_has_an_end(scene: Scene) -> None:
    said = migrate("--wait", "--timeout", "1", code=5).stderr
    assert "still moves after 1 s" in said
    assert "roost vm migrate web-1 --cancel" in said


def test_waiting_for_a_call_off_ends_well_when_the_vm_stays(scene: Scene) -> None:
    scene.script = [("vm.move_abandoned", "called off", STAYED[2])]
    assert "web-1 stays on h1: called off" in migrate("--cancel", "--wait").stdout


def test_a_call_off_that_came_too_late_ends_with_four(scene: Scene) -> None:
    scene.script = [MOVED]
    assert "web-1 has moved to h2" in migrate("--cancel", "--wait", code=4).stderr


# In listings


def test_a_move_in_words() -> None:
    assert listings.move(move("landing", mode="cold")) == "h1 to h2 (landing, cold)"
    assert listings.move(move(progress=progress(1, 0))) == "h1 to h2 (moving): 1 MiB sent, 0 B left"


def test_a_list_says_how_much_of_a_move_is_left_and_cuts_long_messages(scene: Scene) -> None:
    moving = vm("a", virtual=False, state="migrating", migration=move(progress=progress(9, 3)))
    stderr = "qemu-system-x86_64:\n  could not open the disk: " + "x" * 200
    problem = b.ProblemBody(code="boot_failed", message=stderr, generation=1)
    failed = vm("b", virtual=False, state="failed", problem=problem)
    waits = vm("c", virtual=False, state="pending", host=None)
    page = b.VMPage(vms=[moving, failed, waits, vm("d", state="paused")])
    scene.server.on("GET", "/api/v1/vms", page)
    told = CliRunner().invoke(app, ["vm", "list"], env={"COLUMNS": "200"}).stdout
    rows = {line[0]: line for line in told.splitlines() if line[:1] in "abcd"}
    assert "moving: h1 to h2, 3 MiB left" in " ".join(told.split())
    assert [rows[name].split()[1:4] for name in "abcd"] == [
        ["migrating", "h1", "real"], ["failed", "h1", "real"],
        ["pending", "-", "-"], ["paused", "h1", "virtual"],
    ]  # fmt: skip
    assert "x" * 100 not in told


def test_show_tells_what_it_boots_where_its_console_is_and_how_it_moves(scene: Scene) -> None:
    image = b.ImageBody(digest=f"sha256:{'ab' * 32}", url="https://example.org/disk.qcow2")
    note = b.ProblemBody(code="next_boot", message="memory holds from the next boot", generation=2)
    body = vm(
        virtual=False,
        project="shop",
        boot=b.BootBody(image=image, kernel=b.ImageBody(digest=image.digest), cmdline="quiet"),
        nics=[b.NicBody(forward=["tcp:2222:22"]), b.NicBody(mode="tap", bridge="br0")],
        problem=note,
        migration=move(progress=progress(9, 3, passes=1)),
    )
    scene.server.on("GET", "/api/v1/vms/web-1", body)
    told = CliRunner().invoke(app, ["vm", "show", "web-1"]).stdout
    for part in (
        "https://example.org/disk.qcow2  (sha256:abababababab...)", "quiet",
        "user, forwards tcp:2222:22", "tap on br0", "roost vm console web-1 --project shop",
        "h1 to h2 (moving): 9 MiB sent, 3 MiB left, pass 1",
    ):  # fmt: skip
        assert part in told
    [line] = [line for line in told.splitlines() if "next_boot" in line]
    assert line.split()[0] == "note"
    failed = msgspec.structs.replace(body, state="failed")
    scene.server.on("GET", "/api/v1/vms/web-1", failed)
    told = CliRunner().invoke(app, ["vm", "show", "web-1"]).stdout
    [line] = [line for line in told.splitlines() if "next_boot" in line]
    assert line.split()[0] == "problem"


def test_show_of_a_virtual_vm_offers_no_console(scene: Scene) -> None:
    scene.server.on("GET", "/api/v1/vms/web-1", vm())
    assert "console" not in CliRunner().invoke(app, ["vm", "show", "web-1"]).stdout
