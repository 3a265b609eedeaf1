"""`roost vm console`: the log of a guest, followed over moves and silences."""

import io
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from roost.cli.show import screen
from roost.cli.watch import consoles
from roost.wire import bodies as b
from tests.unit.client.canned import CannedServer, Seen, error

PATH = "/api/v1/vms/web-1/console"


class Guest:
    """A guest that writes; its log is that of the host where it is."""

    def __init__(self, log: str = "", host: str = "h1", base: int = 0) -> None:
        self.log, self.host, self.base = log, host, base

    def answer(self, seen: Seen) -> b.ConsoleBody:
        asked = {name: int(value) for name, value in seen.query if name != "project"}
        size, limit = len(self.log), asked["limit"]
        start = min(asked.get("start", max(0, size - limit)), size)
        text = self.log[start : start + limit]
        return b.ConsoleBody(
            vm="vm-web-1",
            text=text,
            start=start,
            end=start + len(text),
            host=self.host,
            base=self.base,
        )


@pytest.fixture
def server(server: CannedServer, monkeypatch: pytest.MonkeyPatch) -> CannedServer:
    """Let consoles look often."""
    monkeypatch.setattr(consoles, "_POLL_S", 0.01)
    return server


def console(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["vm", "console", "web-1", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_log_is_printed_as_it_is(server: CannedServer) -> None:
    guest = Guest("\x1b[1mboot\x1b[0m\r\nlogin: é")
    server.on("GET", PATH, guest.answer)
    assert console().stdout_bytes == guest.log.encode()
    assert console("--bytes", "8", "--project", "shop").stdout == "login: é"
    assert server.requests[1].query == [("project", "shop"), ("limit", "8")]


def test_the_log_as_json_has_its_offsets(server: CannedServer) -> None:
    server.on("GET", PATH, Guest("booting").answer)
    found = json.loads(console("--bytes", "4", "-o", "json").stdout)
    assert found == {
        "vm": "vm-web-1",
        "text": "ting",
        "start": 3,
        "end": 7,
        "host": "h1",
        "base": 0,
    }


GONE = error(404, "not_found", "there is no VM web-1")


def follow(server: CannedServer, *script: Any, form: tuple[str, ...] = ()) -> Any:
    """Follow while the answers of a script are given in turn; then the VM is gone."""
    server.on("GET", PATH, *script, GONE)
    return console("--follow", *form)


def test_following_prints_what_comes_and_nothing_twice(server: CannedServer) -> None:
    script = [Guest(log).answer for log in ("one\n", "one\n", "one\ntwo\n", "one\ntwo\nthree\n")]
    result = follow(server, *script)
    assert result.stdout == "one\ntwo\nthree\n"
    assert "web-1 is gone" in result.stderr
    asked = [dict(seen.query).get("start") for seen in server.requests]
    assert asked == [None, "4", "4", "8", "14"]


@pytest.mark.parametrize("there", ["3\n", "three is longer than all before\n"])
def test_following_goes_on_from_the_start_of_the_new_hosts_log(
    server: CannedServer, there: str
) -> None:
    moved = Guest(there, host="h2").answer
    result = follow(server, Guest("one\n").answer, Guest("one\ntwo\n").answer, moved, moved, moved)
    assert result.stdout == f"one\ntwo\n{there}"
    assert "web-1 is on h2 now" in result.stderr


def test_following_goes_on_where_it_was_when_the_log_came_along(server: CannedServer) -> None:
    moved = Guest("one\ntwo\nthree\n", host="h2", base=8).answer
    result = follow(server, Guest("one\n").answer, moved, moved)
    assert result.stdout == "one\ntwo\nthree\n"
    assert "web-1 is on h2 now" in result.stderr


def test_following_a_guest_that_was_silent_until_it_moved_loses_nothing(
    server: CannedServer,
) -> None:
    result = follow(server, Guest("").answer, Guest("first\n", host="h2").answer)
    assert result.stdout == "first\n"


def test_a_log_that_began_anew_is_read_from_its_start(server: CannedServer) -> None:
    result = follow(server, Guest("long before\n").answer, *[Guest("new\n").answer] * 2)
    assert result.stdout == "long before\nnew\n"


def test_following_waits_while_nobody_can_tell(server: CannedServer) -> None:
    between = error(409, "conflict", "VM 'web-1' has no host")
    away = error(503, "agent_service_unavailable", "the agent of h1 is not connected")
    one, two = Guest("one\n").answer, Guest("one\ntwo\n").answer
    result = follow(server, one, between, between, away, two)
    assert result.stdout == "one\ntwo\n"
    assert result.stderr.count("has no host; waiting") == 1


def test_following_as_json_is_one_line_for_each_piece(server: CannedServer) -> None:
    logs = [Guest("a\n").answer, Guest("a\nb\n").answer]
    lines = follow(server, *logs, form=("-o", "json")).stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["a\n", "b\n"]


def test_full_pieces_are_fetched_without_a_pause(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consoles, "_PIECE_BYTES", 4)
    monkeypatch.setattr(consoles, "_POLL_S", 60.0)
    server.on("GET", PATH, Guest("").answer, *[Guest("0123456789ab").answer] * 2, GONE)
    assert console("--follow", "--bytes", "4").stdout == "01234567"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("--bytes", "0"), 2), (("--bytes", "1048577"), 2), (("--bytes", "many"), 2)],
)
def test_wrong_amounts_are_refused(
    server: CannedServer, arguments: tuple[str, ...], code: int
) -> None:
    console(*arguments, code=code)
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "word", "code"),
    [(404, "not_found", 3), (409, "conflict", 4), (403, "forbidden", 2)],
)
def test_a_console_that_is_not_there_says_why(
    server: CannedServer, status: int, word: str, code: int
) -> None:
    server.on("GET", PATH, error(status, word, "so it is"))
    assert "so it is" in console("--follow", code=code).stderr


class Terminal:
    """A terminal that remembers."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\r\n\ttext", "plain\r\n\ttext\n"),
        ("\x1b[31mred\x1b[0m\n", "red\n"),
        ("\x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\y\n", "xy\n"),
        ("\x1bPq...\x1b\\\x1bc\x1b(Bdone\n", "done\n"),
        ("bell\x07 back\x08 csi\x9b31m\n", "bell back csi31m\n"),
        ("cut \x1b[3", "cut 3\n"),
    ],
)
def test_a_terminal_is_not_steered_by_a_guest(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    screen.show_raw(text, whole=True)
    assert terminal.buffer.getvalue().decode() == shown


def test_an_interrupt_ends_following_quietly(server: CannedServer) -> None:
    server.on("GET", PATH, Guest("login: \n").answer)
    command = [sys.executable, "-m", "roost.cli.main", "vm", "console", "web-1", "--follow"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "login: \n"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
