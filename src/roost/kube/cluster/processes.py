"""Processes that outlive the command that started them, and are ended by their ids.

A process is known by its id and by when it began: an id alone may by now belong to another.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from roost.app.childprocess import die_with_parent
from roost.base.clock import Clock

_GRACE_S = 10.0
_LOOK_S = 0.02
_BEGAN = 21  # of /proc/PID/stat, counted from 0: clock ticks since boot
#: Children of this process, which must be waited for or would stay as zombies.
_children: dict[tuple[int, int], subprocess.Popen[bytes]] = {}


class Process(Struct, frozen=True):
    """One that was started."""

    name: str
    pid: int
    began: int
    command: list[str]
    log: str

    @property
    def key(self) -> tuple[int, int]:
        """Return what no other process ever has."""
        return self.pid, self.began

    @property
    def is_alive(self) -> bool:
        """Say whether it still runs."""
        if (child := _children.get(self.key)) is not None and child.poll() is not None:
            return False
        return _began(self.pid) == self.began


def start(
    name: str,
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    attached: bool = False,
) -> Process:
    """Start a process that writes to a log; one that is attached ends with us."""
    with log.open("ab") as written:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(os.environ if environment is None else environment),
            preexec_fn=die_with_parent if attached else None,
        )
    process = Process(name, child.pid, _began(child.pid) or 0, list(command), str(log))
    _children[process.key] = child
    return process


async def end(processes: Sequence[Process], clock: Clock, *, grace_s: float = _GRACE_S) -> None:
    """Ask processes to end, one after the other, and end those that do not."""
    for process in processes:
        _signal(process, signal.SIGTERM)
        if not await _wait_gone(process, clock, grace_s):
            _signal(process, signal.SIGKILL)
            await _wait_gone(process, clock, grace_s)


async def kill(process: Process, clock: Clock) -> None:
    """End a process at once, as a crash would."""
    _signal(process, signal.SIGKILL)
    await _wait_gone(process, clock, _GRACE_S)


async def _wait_gone(process: Process, clock: Clock, limit_s: float) -> bool:
    deadline = clock.monotonic() + limit_s
    while process.is_alive:
        if clock.monotonic() > deadline:
            return False
        await clock.sleep(_LOOK_S)
    if (child := _children.pop(process.key, None)) is not None:
        child.wait(_GRACE_S)  # it has ended: this only fetches how
    return True


def _signal(process: Process, number: signal.Signals) -> None:
    if process.is_alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _began(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in brackets, may hold anything; the fields begin after it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[_BEGAN - 2])


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tail(process: Process, lines: int = 5) -> str:
    """Return the end of what a process wrote."""
    try:
        text = Path(process.log).read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


__all__ = ["Process", "cpu_seconds", "end", "kill", "start", "tail"]
