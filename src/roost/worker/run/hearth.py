"""The worker's side of the forge: wardens asked for, waited for and told to end.

The forge is started with the first attempt and started again if it died. A warden is waited for by
a handle of its process, whoever forked it, so a worker that starts anew waits for those it finds.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from roost.base import private
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.worker.run import forge
from roost.worker.run.plan import CANCEL, Ended, read_ended, read_warden
from roost.worker.run.processes import end_wholly, is_alive

#: How long the forge may take to fork.
_FORK_S = 30.0


class Hearth:
    """The forge of one worker, and the wardens that came from it or from an earlier one."""

    def __init__(self, data: Path, groups: LimitGroups) -> None:
        self._data, self._groups = data, groups
        self._forge: _Forge | None = None
        self._asked: dict[str, asyncio.Future[int]] = {}

    async def start(self, folder: Path) -> int:
        """Have a warden forked for an attempt; return its process."""
        if self._forge is None:
            self._forge = _Forge(self._data, self._hear)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[str(folder)] = answer
        try:
            os.write(self._forge.asks, os.fsencode(folder) + b"\n")
            async with asyncio.timeout(_FORK_S):
                return await answer
        except (ConnectionError, TimeoutError) as error:
            raise OSError(f"the forge did not fork a warden: {error!r}") from error
        finally:
            self._asked.pop(str(folder), None)

    async def ended(self, folder: Path, pid: int | None) -> Ended | None:
        """Wait for the warden of an attempt; return how the job ended, None if the warden died."""
        while True:
            if pid is not None:
                await _until_gone(pid)
            if (found := read_ended(folder)) is not None:
                return found
            warden = read_warden(folder)  # an earlier one may have had the attempt already
            if warden is None or warden.pid == pid or not is_alive(warden.pid, warden.began):
                return None
            pid = warden.pid

    def end(self, folder: Path, why: str) -> None:
        """Tell a warden to end its job; the word outlives the worker."""
        with suppress(OSError):
            (folder / CANCEL).write_text(why)
        warden = read_warden(folder)
        if warden is not None and is_alive(warden.pid, warden.began):
            with suppress(ProcessLookupError):
                os.kill(warden.pid, signal.SIGTERM)

    async def sweep(self, group: str) -> None:
        """End what a warden that died has left in its control group."""

        def sweep() -> None:
            end_wholly(lambda: self._groups.members(group), lambda: os.sched_yield())
            self._groups.remove(group)

        await asyncio.to_thread(sweep)

    def close(self) -> None:
        """Let go of the forge; wardens and their jobs go on."""
        if self._forge is not None:
            self._forge.close()
            self._forge = None

    def _hear(self, lines: list[bytes]) -> None:
        """Take what the forge says; nothing: it has ended."""
        for line in lines:
            pid, _, folder = line.partition(b" ")
            asked = self._asked.get(os.fsdecode(folder))
            if asked is not None and not asked.done():
                asked.set_result(int(pid))
        if not lines:
            self.close()
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(ConnectionError("the forge has ended"))


class _Forge:
    """The process of a forge. Spawned bare: it outlives the worker as long as it has wardens."""

    def __init__(self, data: Path, hear: Callable[[list[bytes]], None]) -> None:
        reads, self.asks = os.pipe2(os.O_CLOEXEC)
        self._answers, writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._answers, False)
        command = [sys.executable, "-m", forge.__name__, str(data)]
        ends = [(os.POSIX_SPAWN_DUP2, reads, 0), (os.POSIX_SPAWN_DUP2, writes, 1)]
        self._pid = os.posix_spawn(
            sys.executable, command, private.plain_environment(), file_actions=ends, setsid=True
        )
        os.close(reads)
        os.close(writes)
        self._hear, self._text = hear, b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._answers, self._read)

    def _read(self) -> None:
        read = os.read(self._answers, 65536)
        *lines, self._text = (self._text + read).split(b"\n")
        if lines or not read:
            self._hear(lines if read else [])

    def close(self) -> None:
        """Close both ends, and reap the forge if it has ended."""
        self._loop.remove_reader(self._answers)
        os.close(self._answers)
        os.close(self.asks)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)


async def _until_gone(pid: int) -> None:
    """Wait until a process has ended, be it a child of this one or not."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(handle, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
