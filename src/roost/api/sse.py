"""Server-sent events: what happens, pushed down one response until somebody has had enough.

    source -> frames, shared by all who see the same -> connection        a comment every 15 s

A stream is one task. It asks its source for more only when the connection has room, and hands the
shared bytes on without a copy, so a reader who takes nothing costs next to nothing; the connection
cuts it off, and it comes back with Last-Event-ID and misses nothing. The stream ends with the
reader, when the server stops, or with the source, whose error is the last event. Readers are
bounded, in all and with one token.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Protocol

from roost.api.answers import CONNECTION, Receive, Scope, Send
from roost.api.limits import Limits
from roost.base.clock import Clock
from roost.base.errors import RoostError, TooManyRequests
from roost.wire.eventstream import SIGN_OF_LIFE, error_frame

#: Seconds between two comments that keep idle connections alive.
KEEP_ALIVE_S = 15.0
#: Streams that are sent one in one turn of the event loop.
_AT_ONCE = 64

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy must not hold events back
]


class StreamedTo(Protocol):
    """A connection as a stream sees it."""

    on_lost: Any

    @property
    def is_full(self) -> bool:
        """Return whether the client has yet to take what was written."""

    def bound_sending(self) -> None:
        """Let the kernel hold little of what a reader has not taken."""

    def write_chunk(self, data: bytes) -> None:
        """Write a piece of the response."""

    async def room(self) -> None:
        """Wait until the client has taken most of what was written, or is lost."""

    def end(self) -> None:
        """End the connection at once."""


class Streams:
    """All streams of a server: how many there are, their signs of life and their end."""

    def __init__(self, limits: Limits, clock: Clock, stopping: asyncio.Event) -> None:
        self._limits, self._clock, self._stopping = limits, clock, stopping
        self._open: dict[EventStream, None] = {}
        self._tokens: Counter[str] = Counter()
        self._loops: list[asyncio.Task[None]] = []

    def open(self, source: AsyncIterator[bytes], token: str) -> "EventStream":
        """Return a stream for one more reader; raises TooManyRequests."""
        for count, most, where in (
            (len(self._open), self._limits.readers, "of this server"),
            (self._tokens[token], self._limits.token_readers, "with this token"),
        ):
            if count >= most:
                raise TooManyRequests(
                    f"{most} streams of events are read {where}, and no more can be",
                    most=most,
                    retry_after_s=5,
                )
        return EventStream(source, self, token)

    def begin(self, stream: "EventStream") -> None:
        """Count a stream that begins."""
        self._open[stream] = None
        self._tokens[stream.token] += 1
        if not self._loops:
            self._loops = [asyncio.create_task(self._tick()), asyncio.create_task(self._stop())]

    def forget(self, stream: "EventStream") -> None:
        """Count a stream no more."""
        self._open.pop(stream, None)
        self._tokens[stream.token] -= 1
        if not self._tokens[stream.token]:
            del self._tokens[stream.token]
        if not self._open:
            for loop in self._loops:
                loop.cancel()
            self._loops = []

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(KEEP_ALIVE_S)
            for number, stream in enumerate(list(self._open)):
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
                stream.tick()

    async def _stop(self) -> None:
        await self._stopping.wait()
        for stream in list(self._open):
            stream.end()


class EventStream:
    """One reader of the events."""

    status = 200

    def __init__(self, source: AsyncIterator[bytes], streams: Streams, token: str) -> None:
        self.token = token
        self._source = source
        self._streams = streams
        self._reader: StreamedTo | None = None
        self._task: asyncio.Task[Any] | None = None
        self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream events until the reader or the server ends the stream."""
        reader: StreamedTo = scope["extensions"][CONNECTION]
        self._reader, self._task = reader, asyncio.current_task()
        self._streams.begin(self)
        try:
            reader.bound_sending()
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            reader.on_lost = self.end
            await self._pass_on(reader)
        finally:
            reader.on_lost = None
            self._task = None
            self._streams.forget(self)
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()
        if reader.is_full:
            reader.end()  # the end of the response would wait for the reader
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass_on(self, reader: StreamedTo) -> None:
        try:
            async for frames in self._source:
                reader.write_chunk(frames)
                if reader.is_full:
                    await reader.room()
        except asyncio.CancelledError:
            if not self._ended or self._task is None:
                raise
            self._task.uncancel()
        except RoostError as error:
            reader.write_chunk(error_frame(error.as_json()))

    def tick(self) -> None:
        """Send a sign of life, if there is room for one."""
        if self._reader is not None and not self._reader.is_full:
            self._reader.write_chunk(SIGN_OF_LIFE)

    def end(self) -> None:
        """End the stream: the reader has left, or the server stops."""
        if self._task is not None and not self._ended:
            self._ended = True
            self._task.cancel()
