"""The probe port: how one agent measures the way to another, on connections of their own.

    prober  ping PROOF     target  here PROOF, then every line back
    prober  take PROOF     target  here PROOF; the prober sends until it ends; took BYTES MBIT
    prober  give PROOF     target  here PROOF, and sends until it ends

Both sides were told a random word by the control plane, and how much may be sent for how long. A
proof is a keyed hash of the side and the verb, so the word itself is never said: who does not know
it is not let in, and who answers without it is sent nothing but that line. Each verb is good for
one connection. Rates are counted where bytes arrive.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import NamedTuple

from roost.base.clock import Clock
from roost.wire.agentlink import ProbeOrder

#: What an agent sends and takes at most in one direction of one probe, whatever it is told.
MOST_BYTES, MOST_S, MOST_PINGS = 64 * 2**20, 5.0, 100
#: Beyond the seconds of an order: what is under way may still arrive for so long.
FLUSH_S = 3.0
#: To connect, and to answer one line.
_LINE_S = 3.0
#: Connections that have not proved anything yet, of which the oldest makes room.
_MOST_STRANGERS = 16
_LINE_BYTES, _BUFFER_BYTES = 256, 64 * 2**10
_PIECE = bytes(64 * 2**10)
#: Arrivals of one transfer that are remembered; of more, every other one.
_MOST_MARKS = 512
#: A rate over less time than this says more of the clock than of the link.
_LEAST_SPAN_S = 0.001
#: The least and the greatest rate that is believed, in Mbit/s.
_LEAST_MBIT, _MOST_MBIT = 1e-3, 1e9

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ProbeFailed(Exception):
    """No figure, and why: a word for programs and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Mark(NamedTuple):
    """So many bytes had come by then."""

    at_s: float
    total: int


@dataclass(slots=True)
class Found:
    """What a prober has found; None is not known."""

    round_trip_ms: float | None = None
    median_ms: float | None = None
    out_mbit: float | None = None
    back_mbit: float | None = None


def proof(word: str, side: str, verb: str) -> bytes:
    """Return what shows that a side knows the word."""
    return hmac.new(word.encode(), f"{side} {verb}".encode(), "sha256").hexdigest().encode()


def rate_mbit(marks: Sequence[Mark]) -> float | None:
    """Return the rate at which bytes came, without the first quarter of them.

    At first a connection is slow to begin, or a shaped link lets a burst through. Who reads late on
    a busy machine finds much at once afterwards, so it is counted from several moments, and the
    least rate is meant: that much has passed.
    """
    last = marks[-1] if marks else None
    if last is None:
        return None
    begins = [mark for mark in marks if last.total <= 4 * mark.total < 4 * last.total]
    begins = [mark for mark in begins if 2 * mark.total <= last.total] or begins[:1]
    rates = [
        (last.total - mark.total) * 8 / (last.at_s - mark.at_s) / 1e6
        for mark in begins
        if last.at_s - mark.at_s >= _LEAST_SPAN_S
    ]
    return believed(min(rates)) if rates else None


def believed(mbit: float) -> float | None:
    """Return a rate that may be true; None for one that cannot."""
    return mbit if isfinite(mbit) and _LEAST_MBIT <= mbit <= _MOST_MBIT else None


def took_line(mbit: float | None, total: int) -> bytes:
    """Return what a target says of what it took."""
    return b"took %d %s\n" % (total, b"-" if mbit is None else f"{mbit:.6g}".encode())


def read_took(line: bytes, most_bytes: int) -> float | None:
    """Read what a target says of what it took; None if it could not tell the rate.

    Raises ProbeFailed for what cannot be true.
    """
    try:
        verb, total, rate = line.decode("ascii").split()
        if verb == "took" and 0 <= int(total) <= most_bytes:
            if rate == "-":
                return None
            if (mbit := believed(float(rate))) is not None:
                return mbit
    except ValueError:  # also what is not ASCII
        pass
    raise ProbeFailed("probe_nonsense", "what the other agent says that it took makes no sense")


# Both sides


async def send(writer: asyncio.StreamWriter, most_bytes: int, seconds: float, clock: Clock) -> None:
    """Send bytes until there were so many, or for so long, and end the stream."""
    until_s, left = clock.monotonic() + seconds, most_bytes
    while left > 0 and clock.monotonic() < until_s:
        piece = _PIECE[:left]
        writer.write(piece)
        left -= len(piece)
        await writer.drain()
    writer.write_eof()


async def receive(
    reader: asyncio.StreamReader, most_bytes: int, seconds: float, clock: Clock
) -> tuple[int, float | None]:
    """Take bytes until the stream ends or time is over; return how many, and their rate."""
    total, marks = 0, list[Mark]()
    with suppress(TimeoutError):  # what came until then counts
        async with asyncio.timeout(seconds + FLUSH_S):
            while data := await reader.read(len(_PIECE)):
                total += len(data)
                if total > most_bytes:
                    raise ProbeFailed("probe_too_much", f"more than {most_bytes} bytes were sent")
                marks.append(Mark(clock.monotonic(), total))
                if len(marks) > _MOST_MARKS:
                    del marks[1:-1:2]
    return total, rate_mbit(marks)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; raises ValueError for one without an end in time or in length."""
    line = await reader.readline()
    if len(line) > _LINE_BYTES:
        raise ValueError("a line that is too long")
    return line.strip()


# The target


@dataclass(slots=True)
class Expected:
    """Who is let in: a word, how much of what, and until when."""

    word: str
    bytes: int
    seconds: float
    pings: int
    until_s: float
    verbs: set[str] = field(default_factory=lambda: {"ping", "take", "give"})


class ProbeDoor:
    """The target's side: a port that lets in who knows the word that is expected now."""

    def __init__(self, clock: Clock, spend: Callable[[float], None]) -> None:
        self._clock, self._spend = clock, spend
        self._server: asyncio.Server | None = None
        self._expected: Expected | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._tasks: dict[asyncio.Task[object], asyncio.StreamWriter] = {}

    async def open(self, host: str, port: int) -> int:
        """Listen; return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._answer, host, port, limit=_BUFFER_BYTES)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    def expect(self, order: ProbeOrder) -> None:
        """Let in who knows the word of this order; an earlier one is not let in any more."""
        self._expected = Expected(
            order.word,
            min(order.bytes, MOST_BYTES),
            min(order.seconds, MOST_S),
            min(order.pings, MOST_PINGS),
            self._clock.monotonic()
            + 2 * (min(order.seconds, MOST_S) + FLUSH_S + _LINE_S)
            + _LINE_S,
        )
        for writer in self._open:
            writer.close()

    async def close(self) -> None:
        """Listen no more, and hang up."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._expected = None
        for writer in self._tasks.values():
            writer.close()  # whoever reads or writes there ends by itself
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = writer
        try:
            with suppress(OSError, ValueError, TimeoutError, ProbeFailed):
                expected = self._expected
                verb = await self._let_in(expected, reader, writer)
                if expected is not None and verb:
                    self._open.add(writer)
                    await self._serve(expected, verb, reader, writer)
        finally:
            del self._tasks[task]
            self._open.discard(writer)
            writer.close()

    async def _let_in(
        self, expected: Expected | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str:
        """Return what a connection may do that proves in time that it knows the word."""
        if expected is None or self._clock.monotonic() > expected.until_s:
            return ""
        self._strangers[writer] = None
        if len(self._strangers) > _MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.close()
        try:
            async with asyncio.timeout(_LINE_S):
                said = await _line(reader)
        finally:
            self._strangers.pop(writer, None)
        for verb in sorted(expected.verbs):
            if hmac.compare_digest(said, b"%s %s" % (verb.encode(), _asks(expected.word, verb))):
                expected.verbs.discard(verb)
                return verb
        return ""

    async def _serve(
        self,
        expected: Expected,
        verb: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(b"here %s\n" % _answers(expected.word, verb))
        if verb == "ping":
            for _ in range(expected.pings + 1):
                async with asyncio.timeout(_LINE_S):
                    if not (line := await _line(reader)):
                        return
                    writer.write(line + b"\n")
                    await writer.drain()
            return
        begun_s = self._clock.monotonic()
        try:
            if verb == "give":
                async with asyncio.timeout(expected.seconds + FLUSH_S):
                    await send(writer, expected.bytes, expected.seconds, self._clock)
                    await reader.read(1)  # until the prober has it all and hangs up
                return
            total, mbit = await receive(reader, expected.bytes, expected.seconds, self._clock)
            writer.write(took_line(mbit, total))
            async with asyncio.timeout(_LINE_S):
                await writer.drain()
        finally:
            self._spend(self._clock.monotonic() - begun_s)


def _asks(word: str, verb: str) -> bytes:
    return proof(word, "prober", verb)


def _answers(word: str, verb: str) -> bytes:
    return proof(word, "target", verb)


# The prober


async def measure(order: ProbeOrder, host: str, port: int, clock: Clock, found: Found) -> None:
    """Measure the way to the agent at an address; what was found until it fails is in `found`.

    Raises ProbeFailed.
    """
    most, seconds = min(order.bytes, MOST_BYTES), min(order.seconds, MOST_S)

    @asynccontextmanager
    async def line(verb: str) -> AsyncIterator[Stream]:
        """Open a connection on which the target has proved that it knows the word."""
        async with asyncio.timeout(_LINE_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_BUFFER_BYTES)
        try:
            writer.write(b"%s %s\n" % (verb.encode(), _asks(order.word, verb)))
            said = b""
            with suppress(ConnectionError):
                async with asyncio.timeout(_LINE_S):
                    said = await _line(reader)
            if not said:
                raise ProbeFailed("probe_refused", "the other agent does not let it in")
            if not hmac.compare_digest(said, b"here " + _answers(order.word, verb)):
                raise ProbeFailed("probe_stranger", "who answers there does not know the word")
            yield reader, writer
        finally:
            writer.close()

    try:
        async with line("ping") as (reader, writer):
            found.round_trip_ms, found.median_ms = await _ping(reader, writer, order.pings, clock)
        if most <= 0 or seconds <= 0:
            return
        async with line("take") as (reader, writer):
            async with asyncio.timeout(seconds + FLUSH_S):
                await send(writer, most, seconds, clock)
            async with asyncio.timeout(seconds + FLUSH_S + _LINE_S):
                found.out_mbit = read_took(await _line(reader), most)
        async with line("give") as (reader, writer):
            _, found.back_mbit = await receive(reader, most, seconds, clock)
    except TimeoutError as error:
        raise ProbeFailed("probe_timeout", f"{host}:{port} does not answer in time") from error
    except OSError as error:
        text = f"{host}:{port} cannot be reached: {error.strerror or error}"
        raise ProbeFailed("probe_unreachable", text) from error
    except ValueError as error:
        text = f"what {host}:{port} says makes no sense: {error}"
        raise ProbeFailed("probe_nonsense", text) from error


async def _ping(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pings: int, clock: Clock
) -> tuple[float, float]:
    """Return the least and the median round trip in ms, without the first: it wakes both up."""
    times = list[float]()
    for at in range(max(1, min(pings, MOST_PINGS)) + 1):
        line = b"%d\n" % at
        begun_s = clock.monotonic()
        writer.write(line)
        async with asyncio.timeout(_LINE_S):
            said = await reader.readline()
        if said != line:
            raise ProbeFailed(
                "probe_nonsense", "the other agent does not send back what it is sent"
            )
        times.append((clock.monotonic() - begun_s) * 1000)
    return min(times[1:]), median(times[1:])
