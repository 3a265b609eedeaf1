"""Server-sent events: what happens, pushed down one response until somebody has had enough.

    follow -> pump -> buffer -> writer -> socket        ticker: a comment every 15 s

The pump reads ahead only so far as the buffer has room, and the writer waits for the socket, so a
slow reader costs one small buffer. One that takes nothing for a whole tick is cut off; it comes
back with Last-Event-ID and misses nothing. The stream ends with the reader, when the server stops,
or with the source, whose error is the last event.
"""

import asyncio
from collections.abc import AsyncIterator

from roost.api.answers import Receive, Scope, Send, encoder
from roost.base.clock import Clock
from roost.base.errors import RoostError
from roost.wire.bodies import EventBody

#: Seconds between two comments that keep idle connections alive, and most a reader may stall.
KEEP_ALIVE_S = 15.0
#: Bytes read ahead of the socket.
BUFFER_BYTES = 256 * 1024

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy must not hold events back
]


def encode(event: EventBody) -> bytes:
    """Write one event; its JSON has no line breaks."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        event.seq,
        event.kind.encode(),
        encoder.encode(event),
    )


class EventStream:
    """One reader of the events."""

    status = 200

    def __init__(
        self, source: AsyncIterator[EventBody], clock: Clock, stopping: asyncio.Event
    ) -> None:
        self._source = source
        self._clock = clock
        self._stopping = stopping
        self._buffer: list[bytes] = []
        self._size = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._sending = False
        self._sent = 0
        self._over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream events until the reader or the server ends the stream."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        writer = asyncio.ensure_future(self._write(send))
        others = [
            asyncio.ensure_future(part)
            for part in (
                self._pump(),
                self._tick(),
                self._until_disconnected(receive),
                self._stopping.wait(),
            )
        ]
        try:
            ended, _ = await asyncio.wait([writer, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()  # a bug ends this response, and is logged by the server
            if not self._sending:
                # The source, the server or the reader ended it while the socket took everything:
                # what is buffered and the end of the response can still be sent.
                self._over = True
                self._filled.set()
                await writer
        finally:
            for task in (writer, *others):
                task.cancel()
            await asyncio.gather(writer, *others, return_exceptions=True)
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()

    def _put(self, data: bytes) -> None:
        self._buffer.append(data)
        self._size += len(data)
        self._filled.set()

    async def _pump(self) -> None:
        try:
            async for event in self._source:
                self._put(encode(event))
                while self._size > BUFFER_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except RoostError as error:
            self._put(b"event: error\ndata: %s\n\n" % encoder.encode(error.as_json()))

    async def _write(self, send: Send) -> None:
        while not self._over or self._buffer:
            await self._filled.wait()
            self._filled.clear()
            data = b"".join(self._buffer)
            self._buffer.clear()
            self._size = 0
            self._room.set()
            self._sending = True
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._sending = False
            self._sent += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tick(self) -> None:
        seen = -1
        while True:
            await self._clock.sleep(KEEP_ALIVE_S)
            if self._sending and self._sent == seen:
                return  # nothing was taken since the last tick
            seen = self._sent
            if not self._sending:
                self._put(b": still here\n\n")

    async def _until_disconnected(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
