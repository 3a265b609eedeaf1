"""Whether the target's agent attends to an incoming copy: asked by the source over a line of text.

Only the target's agent lets a copy execute. So the source asks it before the guest is handed over,
and while nobody answers the guest stays where it can go on; and it asks afterwards when the guest
executes, for only then is the stand-still over. A line is opened for each copy beside QEMU's own
(`endpoint["agent"]`: WORD@ADDRESS). Nothing is decided by what is said here but when to hand over,
and what machine the copy is. The word is random, of each copy its own, and comes to the source by
way of the control plane: whoever does not begin with it is not heard, nor waited for.

    source: WORD
    source: as SHAPE   target: here        once the copy is a machine of the source's shape
    source: console END LENGTH and so many bytes      target: here        once they are kept
    source: runs?      target: runs        when the copy executes, or has arrived and is to stand
"""

import asyncio
import hmac
import re
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
#: Connections to one copy at a time: the source's, and one of it that has not ended yet; and those
#: that have not said the word, of which the oldest makes room, and how long they may take to.
_MOST, _MOST_STRANGERS, _WORD_S = 4, 16, 3.0
_WORD = re.compile(r"[0-9a-f]{32}")
_AGAIN_S = 0.05


def line_of(word: str, uri: str) -> str:
    """Return how an endpoint names the line of a copy."""
    return f"{word}@{uri}"


def read_line(line: str) -> tuple[str, str]:
    """Return the word and the address of a line; no word if it is of an older agent."""
    word, _, uri = line.partition("@")
    return (word, uri) if _WORD.fullmatch(word) else ("", line)


class Attendance:
    """The target's side: answers for one incoming copy for as long as this agent lives."""

    def __init__(
        self,
        word: str,
        executes: asyncio.Event,
        reshape: Callable[[Shape], Awaitable[None]],
        keep_console: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        self._word = word.encode()  # empty: an older agent has named the line
        self._executes = executes
        self._reshape = reshape
        self._keep_console = keep_console
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # oldest first

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
        for writer in (*self._open, *self._strangers):
            writer.close()
        self._open.clear()
        self._strangers.clear()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError):
            if await self._is_source(reader, writer) and len(self._open) < _MOST:
                self._open.add(writer)
                while line := (await reader.readline()).strip():
                    writer.write(await self._said(line, reader) + b"\n")
                    await writer.drain()
        self._open.discard(writer)
        writer.close()

    async def _is_source(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Say whether a connection begins with the word of this copy, and soon."""
        if not self._word:
            return True
        self._strangers[writer] = None
        if len(self._strangers) > _MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.close()
        try:
            async with asyncio.timeout(_WORD_S):
                said = (await reader.readline()).strip()
        finally:
            self._strangers.pop(writer, None)
        return hmac.compare_digest(said, self._word)

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

    def __init__(self, line: str, clock: Clock) -> None:
        self._word, self._uri = read_line(line)  # empty: an older agent that cannot be asked
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
        answer, line = b"", _AS + msgspec.json.encode(shape) + b"\n"
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not answer:
                    with suppress(OSError, ValueError):  # or a line without an end
                        answer = await self._say(line)
                    self.close()
                    if not answer:
                        await self._clock.sleep(_AGAIN_S)  # it may be starting again
        self.close()
        if answer == _HERE:
            return ""
        return answer.decode(errors="replace") or "its target's agent does not answer"

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
                    with suppress(OSError, ValueError):
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
            if self._word:
                self._line[1].write(self._word.encode() + b"\n")
        reader, writer = self._line
        writer.write(line)
        await writer.drain()
        return (await reader.readline()).strip()
