"""Whether the target's agent attends to an incoming copy: asked by the source over a line of text.

Only the target's agent lets a copy execute. So the source asks it before the guest is handed over,
and while nobody answers the guest stays where it can go on; and it asks afterwards when the guest
executes, for only then is the stand-still over. A line is opened for each copy beside QEMU's own
(`endpoint["agent"]`). Nothing is decided by what is said here but when to hand over.

    source: as SHAPE   target: here        once the copy is a machine of the source's shape
    source: console END LENGTH and so many bytes      target: here        once they are kept
    source: runs?      target: runs        when the copy executes, or has arrived and is to stand
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from roost.agent.drivers.qemu.manifest import Shape
from roost.agent.drivers.qemu.move.endpoints import Address, parse
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError

_HERE, _RUNS = b"here", b"runs"
_AS, _CONSOLE = b"as ", b"console "
_MOST_CONSOLE_BYTES = 64 << 10
_LINE_BYTES = 1024
#: Connections to one copy at a time: the source's, and one of it that has not ended yet.
_MOST = 4
_AGAIN_S = 0.05


class Attendance:
    """The target's side: answers for one incoming copy for as long as this agent lives."""

    def __init__(
        self,
        executes: asyncio.Event,
        reshape: Callable[[Shape], Awaitable[None]],
        keep_console: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        self._executes = executes
        self._reshape = reshape
        self._keep_console = keep_console
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self, address: Address) -> None:
        """Answer at an address; raises `no_port` when it is taken."""
        try:
            if address.path:
                self._server = await asyncio.start_unix_server(
                    self._answer, address.path, limit=_LINE_BYTES
                )
            else:
                self._server = await asyncio.start_server(
                    self._answer, address.host, address.port, limit=_LINE_BYTES
                )
        except OSError as error:
            text = f"Address already in use or not ours: {address.uri}: {error}"
            raise DriverError("transient", "no_port", text) from error

    @property
    def is_open(self) -> bool:
        """Return whether it answers."""
        return self._server is not None

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.close()
        self._open.clear()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _MOST:
            writer.close()
            return
        self._open.add(writer)
        with suppress(OSError, ValueError, asyncio.IncompleteReadError):
            while line := (await reader.readline()).strip():
                writer.write(await self._said(line, reader) + b"\n")
                await writer.drain()
        self._open.discard(writer)
        writer.close()

    async def _said(self, line: bytes, reader: asyncio.StreamReader) -> bytes:
        if line.startswith(_CONSOLE):
            end, length = map(int, line.removeprefix(_CONSOLE).split())
            if not 0 <= length <= _MOST_CONSOLE_BYTES or not 0 <= end < 1 << 62:
                raise ValueError(line)
            data = await reader.readexactly(length)
            if not self._executes.is_set():
                await self._keep_console(end, data)
            return _HERE
        if line.startswith(_AS):
            try:
                await self._reshape(msgspec.json.decode(line.removeprefix(_AS), type=Shape))
            except (DriverError, msgspec.DecodeError) as error:
                return f"no: {error}".replace("\n", " ").encode()[: _LINE_BYTES - 1]
        elif line == _RUNS + b"?":
            await self._executes.wait()
            return _RUNS
        return _HERE


class Asking:
    """The source's side: asks the agent of one target."""

    def __init__(self, uri: str, clock: Clock) -> None:
        self._uri = uri  # empty: an older agent that cannot be asked
        self._clock = clock
        self._line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_possible(self) -> bool:
        """Return whether the target can be asked at all."""
        return bool(self._uri)

    async def hand_console(self, end: int, data: bytes, within_s: float) -> bool:
        """Hand over the end of a VM's log; return whether the target's agent has answered."""
        if not self._uri:
            return True
        line = _CONSOLE + b"%d %d\n" % (end, len(data)) + data
        return await self._asks(line, _HERE, within_s)

    async def tell_shape(self, shape: Shape, within_s: float) -> str:
        """Let the copy be a machine of this shape; return why it cannot be, or nothing."""
        try:
            async with asyncio.timeout(within_s):
                answer = await self._say(_AS + msgspec.json.encode(shape) + b"\n")
        except (OSError, TimeoutError):
            return "its target's agent does not answer"
        finally:
            self.close()
        return "" if answer == _HERE else answer.decode(errors="replace") or "the line was closed"

    async def runs(self, within_s: float) -> bool:
        """Wait until the guest executes at the target; False when that is not known in time."""
        return bool(self._uri) and await self._asks(_RUNS + b"?\n", _RUNS, within_s)

    def close(self) -> None:
        """Close the line."""
        if self._line is not None:
            self._line[1].close()
            self._line = None

    async def _asks(self, line: bytes, word: bytes, within_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    with suppress(OSError):
                        if await self._say(line) == word:
                            return True
                    self.close()
                    await self._clock.sleep(_AGAIN_S)  # it may be starting again
        self.close()
        return False

    async def _say(self, line: bytes) -> bytes:
        if self._line is None:
            address = parse(self._uri)
            self._line = (
                await asyncio.open_unix_connection(address.path, limit=_LINE_BYTES)
                if address.path
                else await asyncio.open_connection(address.host, address.port, limit=_LINE_BYTES)
            )
        reader, writer = self._line
        writer.write(line)
        await writer.drain()
        return (await reader.readline()).strip()
