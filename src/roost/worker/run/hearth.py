"""The worker's side of the forge: wardens asked for, given attempts, and told to end them.

The forge is started with the first attempt and started again if it died. Wardens are kept for the
next attempt when they have ended one. Those that an earlier worker asked for are found by their
files and waited for by a handle of their process.
"""

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from roost.base import private
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.worker.run import forge
from roost.worker.run.plan import (
    CANCEL,
    Ended,
    Plan,
    order_line,
    read_answer,
    read_ended,
    read_warden,
)
from roost.worker.run.processes import end_wholly, is_alive

#: How long the forge may take to fork, and a warden to take an order.
_FORK_S, _ORDER_S = 30.0, 5.0
#: Wardens that are kept though they have nothing to do.
_MOST_IDLE = 32


class Hearth:
    """The forge of one worker, and the wardens that came from it or from an earlier one."""

    def __init__(self, data: Path, groups: LimitGroups) -> None:
        self._data, self._groups = data, groups
        self._forge: _Forge | None = None
        self._asked: deque[asyncio.Future[_Warden]] = deque()
        self._idle: list[_Warden] = []
        self._busy: dict[Path, _Warden] = {}

    async def start(self, folder: Path, plan: Plan) -> int:
        """Give an attempt to a warden; return its process."""
        while self._idle:
            warden = self._idle.pop()
            if warden.give(folder, plan):
                break
            warden.close()
        else:
            warden = await self._new_warden()
            if not warden.give(folder, plan):
                warden.close()
                raise OSError("a new warden took no order")
        self._busy[folder] = warden
        return warden.pid

    async def ended(self, folder: Path, pid: int | None) -> Ended | None:
        """Wait for the warden of an attempt; return how the job ended, None if the warden died."""
        if (mine := self._busy.get(folder)) is not None:
            try:
                found = await mine.answer()
                self._keep(mine)
            except EOFError:
                found = None
            except asyncio.CancelledError:
                mine.close()
                raise
            finally:
                self._busy.pop(folder, None)
            if found is not None:
                return found
        while True:
            if (found := read_ended(folder)) is not None:
                return found
            warden = read_warden(folder)  # an earlier one may have had the attempt already
            if warden is None or warden.pid == pid or not is_alive(warden.pid, warden.began):
                return read_ended(folder)
            pid = warden.pid
            await _until_gone(pid)

    def end(self, folder: Path, why: str) -> None:
        """Tell a warden to end its job; the word outlives the worker."""
        with suppress(OSError):
            (folder / CANCEL).write_text(why)
        warden = read_warden(folder)
        if warden is not None and is_alive(warden.pid, warden.began):
            # Only a doorbell: if it has another attempt by now, it finds no word there.
            with suppress(ProcessLookupError):
                os.kill(warden.pid, signal.SIGTERM)

    async def sweep(self, group: str) -> None:
        """End what a warden that died has left in its control group."""

        def sweep() -> None:
            end_wholly(lambda: self._groups.members(group), lambda: os.sched_yield())
            self._groups.remove(group)

        await asyncio.to_thread(sweep)

    def close(self) -> None:
        """Let go of the forge and of all wardens; those that have a job go on."""
        if self._forge is not None:
            self._forge.close()
            self._forge = None
        for warden in (*self._idle, *self._busy.values()):
            warden.close()
        self._idle.clear()
        self._busy.clear()

    def _keep(self, warden: "_Warden") -> None:
        if len(self._idle) < _MOST_IDLE and not warden.is_closed:
            self._idle.append(warden)
        else:
            warden.close()

    async def _new_warden(self) -> "_Warden":
        if self._forge is None:
            self._forge = _Forge(self._data, self._hear)
        answer: asyncio.Future[_Warden] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        try:
            self._forge.ask()
            async with asyncio.timeout(_FORK_S):
                return await answer
        except (ConnectionError, TimeoutError) as error:
            raise OSError(f"the forge did not fork a warden: {error!r}") from error

    def _hear(self, warden: "_Warden | None") -> None:
        """Take a warden that the forge has forked; None: the forge has ended."""
        if warden is None:
            if self._forge is not None:
                self._forge.close()
                self._forge.reap()
                self._forge = None
            while self._asked:
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_exception(ConnectionError("the forge has ended"))
            return
        while self._asked:
            asked = self._asked.popleft()
            if not asked.done():
                asked.set_result(warden)
                return
        self._keep(warden)


class _Warden:
    """The way to one warden: an order goes there, an answer comes back."""

    def __init__(self, pid: int, way: socket.socket) -> None:
        self.pid, self._way = pid, way
        way.settimeout(_ORDER_S)
        self._text = b""
        self._answer: asyncio.Future[Ended | None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(way, self._read)
        self.is_closed = False

    def give(self, folder: Path, plan: Plan) -> bool:
        """Send an order; return whether the warden was there to take it."""
        if self.is_closed:
            return False
        self._answer = self._loop.create_future()
        try:
            self._way.sendall(order_line(folder, plan))
        except OSError:
            return False
        return True

    async def answer(self) -> Ended | None:
        """Wait for the answer to the order; raises EOFError when the warden has died."""
        if self._answer is None:
            raise EOFError
        return await self._answer

    def _read(self) -> None:
        try:
            data = self._way.recv(65536)
        except OSError:
            data = b""
        self._text += data
        line, end, rest = self._text.partition(b"\n")
        if end and self._answer is not None and not self._answer.done():
            self._text = rest
            self._answer.set_result(read_answer(line))
        if not data:
            self.close()

    def close(self) -> None:
        """Let go of the warden: it ends when it has nothing to do."""
        if not self.is_closed:
            self.is_closed = True
            self._loop.remove_reader(self._way)
            self._way.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError())
            self._answer.exception()  # perhaps nobody waits


class _Forge:
    """The process of a forge. Spawned bare: it outlives the worker as long as it has wardens."""

    def __init__(self, data: Path, hear: "Callable[[_Warden | None], None]") -> None:
        self._way, theirs = socket.socketpair()
        command = [sys.executable, "-m", forge.__name__, str(data)]
        with theirs:
            ends = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
            self._pid = os.posix_spawn(
                sys.executable, command, private.plain_environment(), file_actions=ends, setsid=True
            )
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._way, self._read)

    def ask(self) -> None:
        """Ask for one more warden."""
        self._way.sendall(b"w")

    def _read(self) -> None:
        """Take what the forge says: one line and one way for each warden."""
        try:
            data, ways, _, _ = socket.recv_fds(self._way, 64, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, ways = b"", []
        if not data:
            self._hear(None)
        for way in ways:
            self._hear(_Warden(int(data), socket.socket(fileno=way)))

    def close(self) -> None:
        """Close the way to the forge, and reap it if it has ended."""
        self._loop.remove_reader(self._way)
        self._way.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)

    def reap(self) -> None:
        """Reap the forge once it has ended: its way is closed a moment before it is gone."""
        try:
            handle = os.pidfd_open(self._pid)
        except ProcessLookupError:
            return

        def gone() -> None:
            self._loop.remove_reader(handle)
            os.close(handle)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)

        self._loop.add_reader(handle, gone)


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
