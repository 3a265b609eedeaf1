"""What others wrote never steers the terminal of whoever reads it: real commands on a terminal."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from roost.cli.show.steering import STEERING, unsteered
from roost.wire import bodies as b
from roost.wire import jobs as w
from tests.unit.client.bodies import NOW, vm
from tests.unit.client.canned import CannedServer, error

#: Fills the clipboard, clears the screen, retitles the window; by escapes and by single characters.
EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;mine\x1b\\\x9b2J\x9d0;mine\x9c\x08"
#: What roost writes itself: styles.
STYLE = re.compile(r"\x1b\[[0-9;]*m")
API = "/api/v1"


def problem() -> b.VMBody:
    return vm(
        labels={"team": f"x{EVIL}y\rforged"},
        state="failed",
        problem=b.ProblemBody(code="driver_failed", message=f"QEMU said {EVIL}end", generation=1),
    )


def lists_vms(server: CannedServer) -> list[str]:
    server.on("GET", f"{API}/vms", {"vms": [built(problem())], "next": None})
    return ["vm", "list", "-o", "wide"]


def shows_a_vm(server: CannedServer) -> list[str]:
    server.on("GET", f"{API}/vms/web-1", built(problem()))
    return ["vm", "show", "web-1"]


def writes_json(server: CannedServer) -> list[str]:
    server.on("GET", f"{API}/vms/web-1", built(problem()))
    return ["vm", "show", "web-1", "-o", "json"]


def writes_yaml(server: CannedServer) -> list[str]:
    server.on("GET", f"{API}/vms/web-1", built(problem()))
    return ["vm", "show", "web-1", "-o", "yaml"]


def meets_an_error(server: CannedServer) -> list[str]:
    said = error(409, "agent_refused", f"host said {EVIL}end", hint=f"Maybe {EVIL} is meant.")
    server.on("GET", f"{API}/vms/web-1", said)
    return ["vm", "show", "web-1"]


def reads_events(server: CannedServer) -> list[str]:
    seen = b.EventBody(1, NOW, f"agent{EVIL}", "vm.failed", "vm/web-1", None, {"name": EVIL})
    server.on("GET", f"{API}/events", {"events": [built(seen)], "next": None})
    return ["events"]


def reads_a_log(server: CannedServer) -> list[str]:
    log = f"out {EVIL}put\n".encode()
    piece = w.LogBody("job-1.0", 1, "stdout", 0, len(log), ended=True, dropped=0, data=log)
    server.on("GET", f"{API}/jobs/job-1.0/logs", piece)
    return ["job", "logs", "job-1.0"]


def fetches_a_file(server: CannedServer) -> list[str]:
    kept = w.KeptOutput("x\x9b2Jy", "file:///x", 0)
    server.on("GET", f"{API}/jobs/job-1.0", job(outputs=[kept]))
    server.on(
        "GET",
        f"{API}/jobs/job-1.0/outputs",
        w.OutputPiece("job-1.0", kept.name, 0, 0, 0, b"", ended=True),
    )
    return ["job", "fetch", "job-1.0"]


def job(**more: Any) -> w.JobDetail:
    fields: dict[str, Any] = dict.fromkeys(w.JobDetail.__struct_fields__) | {
        "id": "job-1.0", "array": "job-1", "index": 0, "name": "", "project": "default",
        "pool": "p", "state": "completed", "attempt": 1, "reason": "", "message": "",
        "internal": False, "queued_at": NOW, "run_ms": 0, "cpu_ms": 0, "memory_bytes": 0,
        "cost_micro": 0, "attempts": [],
    }  # fmt: skip
    return w.JobDetail(**fields | more)


def built(body: Any) -> Any:
    """Return a body as JSON has it."""
    return msgspec.to_builtins(body)


COMMANDS = [
    lists_vms, shows_a_vm, writes_json, writes_yaml, meets_an_error, reads_events, reads_a_log,
    fetches_a_file,
]  # fmt: skip


@pytest.mark.parametrize("asks", COMMANDS, ids=lambda each: each.__name__)
def test_no_command_passes_on_what_steers_a_terminal(
    server: CannedServer, asks: Callable[[CannedServer], list[str]]
) -> None:
    shown = on_a_terminal(asks(server))
    assert shown.strip()
    plain = STYLE.sub("", shown).replace("\r\n", "\n")  # as a terminal ends its lines
    assert STEERING.search(plain) is None
    assert "\r" not in plain


def on_a_terminal(arguments: list[str]) -> str:
    """Run a command whose output is a terminal, and return what came there."""
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "roost.cli.main", *arguments]
        more = {"TERM": "xterm-256color", "COLUMNS": "400"}
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(os.environ) | more
        ) as process:
            os.close(theirs)
            shown = b"".join(iter(lambda: piece(ours), b""))
            process.wait(30)
    finally:
        os.close(ours)
    return shown.decode()


def piece(terminal: int) -> bytes:
    """Read a piece; a terminal whose other end is closed has no more."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.mark.parametrize("text", ["", "plain", "tab\tand\nnew line\r", "é 猫 🐈", "a\u00a0b"])
def test_text_that_steers_nothing_stays_as_it_is(text: str) -> None:
    assert unsteered(text) == text
