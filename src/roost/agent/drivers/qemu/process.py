"""QEMU as a process: started apart from the agent, known by pid and start time, seen to its end.

A pid alone is never trusted: after a restart of the agent, or of the host, it may be another's.
The process has its own session, so it outlives the agent; if it is the agent's child it is reaped
when it ends. Its standard error goes to a file, whose end says why a start failed.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from roost.agent.fencing import guard
from roost.base import private
from roost.hostkit.failures import DriverError

#: The file in a VM's folder that QEMU's standard error goes to.
LOG = "qemu.log"
#: The file in which the fence guard says which process it has ended.
FENCED_MARK = "fenced"
_TAIL_BYTES = 2000


class Identity(Struct, frozen=True):
    """What names one process for ever."""

    pid: int
    started: int  # clock ticks since boot
    boot: str = ""  # which boot; empty: this one

    def recipe(self, folder: Path) -> dict[str, object]:
        """Return the stop recipe by which the fence guard kills this process."""
        process = {"pid": self.pid, "started": self.started}
        return {
            "kind": "kill",
            "processes": [process],
            "mark": str(folder.absolute() / FENCED_MARK),
        }

    def was_fenced(self, folder: Path) -> bool:
        """Return whether the fence guard has ended it."""
        try:
            return (folder / FENCED_MARK).read_text() == f"{self.pid} {self.started}"
        except OSError:
            return False


class Process:
    """A live handle on a process: its own child or one found again. `close` lets go of it."""

    def __init__(self, identity: Identity, descriptor: int, ended: Callable[[], None]) -> None:
        self.identity = identity
        self._descriptor = descriptor
        self._ended = ended
        self._gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._end)

    @property
    def is_gone(self) -> bool:
        """Return whether the process has ended."""
        return self._gone.is_set() or not is_alive(self.identity)

    async def wait_gone(self, within_s: float) -> bool:
        """Wait for the process to end; return whether it has."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._gone.wait()
        return self.is_gone

    async def kill(self, within_s: float = 10.0) -> None:
        """Kill the process; raises DriverError `not_killed` when it does not end."""
        if self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        if not await self.wait_gone(within_s):
            raise DriverError(
                "transient", "not_killed", f"QEMU {self.identity.pid} does not end when killed"
            )

    def close(self) -> None:
        """Stop watching; the process runs on."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _end(self) -> None:
        reap(self.identity.pid)
        self.close()
        self._gone.set()
        self._ended()


async def spawn(
    argv: Sequence[str], folder: Path, ended: Callable[[], None] = lambda: None
) -> Process | None:
    """Start QEMU with a VM's folder as its working directory; None when it has ended already.

    `ended` is called at its end. Raises DriverError `no_qemu` when it cannot be run at all.
    """
    return open_process(await asyncio.to_thread(_spawn, list(argv), folder), ended)


def open_process(identity: Identity, ended: Callable[[], None] = lambda: None) -> Process | None:
    """Return a handle on a process that is alive, None when it is gone."""
    if identity.boot not in ("", guard.boot_id()):
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    # Compared while the handle is held, so it is this very process that is watched.
    if guard.is_gone(identity.pid, identity.started):
        os.close(descriptor)
        reap(identity.pid)
        return None
    return Process(identity, descriptor, ended)


def is_alive(identity: Identity) -> bool:
    """Return whether this very process still executes."""
    if identity.boot not in ("", guard.boot_id()):
        return False
    return not guard.is_gone(identity.pid, identity.started)


def reap(pid: int) -> None:
    """Reap an ended child; another's child is left to its parent."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def log_tail(folder: Path) -> str:
    """Return the last lines of QEMU's log, for error messages."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace").strip()
    except OSError:
        return "(it has written nothing)"
    return text or "(it has written nothing)"


def _spawn(argv: list[str], folder: Path) -> Identity:
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, private.FILE)
    try:
        child = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=private.plain_environment(),
        )
    except OSError as error:
        raise DriverError("permanent", "no_qemu", f"{argv[0]} cannot be run: {error}") from error
    finally:
        os.close(log)
    child.returncode = 0  # it is watched and reaped here by its number, not by this object
    started = guard.started_at(child.pid)
    assert started is not None, "a child has a number until it is reaped"
    return Identity(child.pid, started, guard.boot_id())
