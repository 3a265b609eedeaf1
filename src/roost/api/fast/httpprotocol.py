"""HTTP/1.1 as uvicorn speaks it, bounded, with a short cut for the requests that carry the load.

    headers -> small POST of a known token for the fast lane?  yes: body -> FastLane.answer -> write
                                                               no:  uvicorn's own way through ASGI

The short cut leaves out the ASGI messages around a request whose body is small and announced, and
writes head and body at once (one system call and one packet instead of two). Heads are bounded in
bytes, headers and path; whoever sends half a request, or takes nothing of an answer, is cut off by
`look`, which `Connections` calls now and then. What is refused here, not HTTP at all among it, is
refused in the one shape of errors too.
"""

import asyncio
import fcntl
import logging
import socket
import sys
import termios
from collections.abc import Callable
from typing import Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from roost.api.answers import CONNECTION, Answer, Header
from roost.api.errors import Malformed, answer
from roost.api.fast.connections import Connections
from roost.api.fastlane import FastLane, Known
from roost.base.errors import (
    HeadTooLarge,
    PathTooLong,
    RoostError,
    TooManyRequests,
    TooSlow,
)
from roost.parts.asker import Asker

logger = logging.getLogger("roost.api")

#: Largest body that takes the short cut.
SMALL_BYTES = 64 * 1024
#: Bytes of a body that are thrown away after the answer before the connection is.
_UNREAD_BYTES = 1024 * 1024
#: Seconds in which a client that was refused may read why before its connection is cut.
_LINGER_S = 1.0
#: Bytes that the kernel holds for a reader of events, who may take nothing of them.
_SEND_BYTES = 128 * 1024

# What of a request is being received.
_NOTHING: Final = 0
_HEAD: Final = 1
_BODY: Final = 2


def _in_kernel(transport: asyncio.Transport) -> int:
    """Return the bytes that the kernel keeps for a client: some MB, of which a slow reader may take
    a long time before there is room for more of ours.
    """
    try:
        kept = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0  # closed by now, or not a socket that can say it
    return int.from_bytes(kept, sys.byteorder)


def http_protocol(lane: FastLane | None, watch: Connections) -> type[asyncio.Protocol]:
    """Return the class that uvicorn makes one of for each connection."""

    class BoundHttp(LeanHttp):
        """A connection to this application."""

    BoundHttp.lane = lane
    BoundHttp.watch = watch
    BoundHttp.limits = watch.limits
    return BoundHttp


class LeanCycle:
    """One request on the short cut, in the shape that uvicorn's protocol expects of a cycle."""

    __slots__ = (
        "body",
        "disconnected",
        "headers",
        "keep_alive",
        "known",
        "more_body",
        "path",
        "response_complete",
    )

    def __init__(
        self, path: str, headers: list[Header], keep_alive: bool, known: Known | None
    ) -> None:
        self.path = path
        self.headers = headers
        self.known = known
        self.body = bytearray()
        self.more_body = True
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_complete = False

    @property
    def message_event(self) -> "LeanCycle":
        """Return what uvicorn sets when something came; no task waits for it here."""
        return self

    def set(self) -> None:
        """Ignore uvicorn's signal that a part of the body came."""


class _Refused(Exception):
    """Ends the parsing of a request that is refused for its head."""


class LeanHttp(HttpToolsProtocol):
    """One HTTP connection, bounded, with a short cut for creates.

    A stream of events writes to it directly (`write_chunk`), as everybody's frames are the same.
    """

    shakes = False  # its handshake, if it has one, is over
    lane: ClassVar[FastLane | None] = None
    watch: ClassVar[Connections]
    limits: ClassVar[Any]

    def __init__(self, *arguments: Any, **words: Any) -> None:
        super().__init__(*arguments, **words)
        self.address = ""
        self.asker = Asker()
        self.on_made: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.refusal: RoostError | None = None
        self._known = False
        self._closing = False  # what still comes is thrown away
        self._lingering: asyncio.TimerHandle | None = None  # cuts a connection that was refused
        self._receiving = _NOTHING
        self._requests = 0
        self._begun_bytes = 0  # of the chunk in which the head begins, others' among them
        self._head_bytes = 0  # of chunks after that
        self._chunk_bytes = 0
        self._chunks = 0
        self._unread_bytes = 0
        self._room = asyncio.Event()
        self._state = (-1, 0, 0)  # as it was looked at last
        self._state_at = 0.0
        self._unsent = 0
        self._unsent_at = 0.0

    # What the transport calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        if self.on_made is not None:
            self.on_made()  # before it is counted: its handshake was
        self.address = self.client[0] if self.client else ""
        if not self.watch.admit(self, len(self.connections)):
            error = TooManyRequests("there are too many connections", retry_after_s=1)
            self.transport.write(self._written(answer(error), False))
            self._closing = True
            self.transport.close()  # at once: there may be no room for it

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever streams to it, or works for it, that the connection is lost."""
        super().connection_lost(exc)
        # uvicorn does so only for those who end in order: a reset one was kept for a minute more.
        self._unset_keepalive_if_required()
        self.asker.leave()
        if self._lingering is not None:
            self._lingering.cancel()
        self.watch.lost(self)
        self._room.set()
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; a head that grows too large is refused before it is whole."""
        if self._closing:
            return
        self._unset_keepalive_if_required()
        self._chunks += 1
        self._chunk_bytes = len(data)
        if self._receiving != _NOTHING and self._is_too_much(len(data)):
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.refuse(self.refusal or Malformed("this is not HTTP"))
        except httptools.HttpParserUpgrade:
            # Who wants another protocol than WebSocket gets an answer in this one.
            if self._should_upgrade():
                self.handle_websocket_upgrade()

    def _is_too_much(self, more: int) -> bool:
        """Bound what a client may send of a head, or of a body that nobody wants any more."""
        if self._receiving == _HEAD:
            self._head_bytes += more
            if self._head_bytes > self.limits.head_bytes:
                long_path = len(self.url) > self.limits.path_bytes
                self.refuse(self._path_too_long() if long_path else self._head_too_large())
                return True
        elif self._is_answered():
            self._unread_bytes += more
            if self._unread_bytes > _UNREAD_BYTES:
                self.end()
                return True
        return False

    def resume_writing(self) -> None:
        """Let whoever waits for room write again."""
        super().resume_writing()
        self._room.set()

    # Who it is, and how long it keeps us waiting

    @property
    def idle(self) -> bool:
        """Return whether no request is under way."""
        return self._receiving == _NOTHING and self._is_answered()

    @property
    def is_half(self) -> bool:
        """Return whether a request has begun whose head is not whole yet."""
        return self._receiving == _HEAD

    def _is_answered(self) -> bool:
        cycle: Any = self.cycle  # none before the first request
        return cycle is None or bool(cycle.response_complete)

    def _is_unasked(self) -> bool:
        """Return whether the client rightly waits to be asked for the body: who it is comes first,
        and the database may be slow.
        """
        cycle: Any = self.cycle
        return getattr(cycle, "waiting_for_100_continue", False) and not cycle.response_complete

    def authenticated(self) -> None:
        """Note that a request had a good token."""
        if not self._known:
            self._known = True
            self.watch.known(self)

    def look(self, now: float) -> None:
        """End the connection if its client has kept the server waiting for too long.

        `now` is by the clock of `Connections`, of which only differences say something.
        """
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            unsent += _in_kernel(self.transport)
        if unsent != self._unsent:
            self._unsent, self._unsent_at = unsent, now
        elif unsent and now - self._unsent_at >= self.limits.stalled_s:
            self.end()  # politely it would wait for the reader for ever
            return
        if self._closing:
            return
        # A body may take as long as pieces of it come; a head may not.
        state = self._receiving, self._requests, self._chunks if self._receiving == _BODY else 0
        if state != self._state or self.flow.read_paused or self._is_unasked():
            self._state, self._state_at = state, now
        elif now - self._state_at >= self.limits.request_s:
            if self._receiving != _NOTHING:
                self.refuse(TooSlow(f"the request did not come within {self.limits.request_s:g} s"))
            elif not self._requests:
                self.end()

    def end(self) -> None:
        """End the connection at once."""
        self._closing = True
        self.transport.abort()

    def refuse(self, error: RoostError) -> None:
        """Answer with an error and close; what still comes is thrown away."""
        if self._closing or self.transport.is_closing():
            return
        self._closing = True
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            begun = getattr(cycle, "response_started", False)
            cycle.disconnected = True  # nothing else is written
            cycle.message_event.set()
            if begun or self._receiving == _HEAD:
                self.end()  # an answer before this one is not complete
                return
        self.transport.write(self._written(answer(error), False))
        # Closed at once, with data on the way that nobody reads, the client might never see it.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._lingering = self.loop.call_later(_LINGER_S, self.transport.abort)

    def _head_too_large(self) -> RoostError:
        most = self.limits.head_bytes
        return HeadTooLarge(f"the headers are larger than {most} bytes", most_bytes=most)

    def _path_too_long(self) -> RoostError:
        most = self.limits.path_bytes
        return PathTooLong(f"path and query are longer than {most} bytes", most_bytes=most)

    # Streaming

    def bound_sending(self) -> None:
        """Let the kernel hold little of what a reader has not taken."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)

    def write_chunk(self, data: bytes) -> None:
        """Write a piece of a chunked response; the bytes are not copied."""
        self.transport.write(b"%x\r\n" % len(data))
        self.transport.write(data)
        self.transport.write(b"\r\n")

    @property
    def is_full(self) -> bool:
        """Return whether the client has yet to take what was written."""
        return self.flow.write_paused

    async def room(self) -> None:
        """Wait until the client has taken most of what was written, or is lost."""
        while self.flow.write_paused and not self.transport.is_closing():
            self._room.clear()
            await self._room.wait()

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._requests += 1
        self._receiving = _HEAD
        self._begun_bytes = self._chunk_bytes
        self._head_bytes = self._unread_bytes = 0

    def on_headers_complete(self) -> None:
        """Route a request: the short cut for creates, or uvicorn's own way."""
        self._receiving = _BODY
        limits = self.limits
        if (
            len(self.headers) > limits.headers
            or len(self.url) > limits.path_bytes
            or self._begun_bytes + self._head_bytes > limits.head_bytes
        ):
            self._check_head()
        known = self._short_cut()
        if known is None:
            self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]
            super().on_headers_complete()
        else:
            # The connection's own list is another one as soon as the next request begins.
            keep_alive = self.parser.should_keep_alive()
            path = self.url.decode("ascii")
            self.cycle = LeanCycle(  # type: ignore[assignment]
                path, self.headers, keep_alive, known
            )

    def _check_head(self) -> None:
        """Refuse a head that is larger than accepted; the parser then ends."""
        limits = self.limits
        if len(self.url) > limits.path_bytes:
            self.refusal = self._path_too_long()
        elif len(self.headers) > limits.headers:
            most = limits.headers
            self.refusal = HeadTooLarge(f"there are more than {most} headers", most=most)
        elif self._begun_bytes + self._head_bytes > limits.head_bytes and limits.head_bytes < sum(
            len(name) + len(value) + 4 for name, value in self.headers
        ):
            self.refusal = self._head_too_large()
        if self.refusal is not None:
            self._receiving = _HEAD
            raise _Refused

    def _short_cut(self) -> Known | None:
        """Return who sends a request that may take the short cut."""
        before: Any = self.cycle
        if (
            self.lane is None
            or self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
            or self.expect_100_continue
            or not (before is None or before.response_complete)
        ):
            return None
        length = upgrade = authorization = None
        for name, value in self.headers:
            if name == b"content-length":
                length = value
            elif name == b"upgrade" or name == b"transfer-encoding":
                upgrade = value
            elif name == b"authorization":
                authorization = value
        if length is None or upgrade is not None or not length.isdigit():
            return None
        path = self.url.decode("ascii", "replace")
        small = int(length) <= min(SMALL_BYTES, self.lane.most_bytes)
        known = self.lane.known(authorization) if small and self.lane.takes(path) else None
        if known is not None and not self._known:
            self.authenticated()
        return known

    def on_message_complete(self) -> None:
        """Serve a request that is all here."""
        self._receiving = _NOTHING
        cycle: object = self.cycle
        if not isinstance(cycle, LeanCycle):
            super().on_message_complete()
            return
        task = self.loop.create_task(self._serve(cycle))
        task.add_done_callback(self._served)
        self.tasks.add(task)

    def _served(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("a request ended without an answer", exc_info=error)
        if error is not None or task.cancelled():
            self.transport.close()

    async def _serve(self, cycle: LeanCycle) -> None:
        assert self.lane is not None
        reply = await self.lane.answer(
            cycle.path, cycle.headers, bytes(cycle.body), known=cycle.known, asker=self.asker
        )
        cycle.response_complete = True
        if cycle.disconnected or self.transport.is_closing():
            return
        self.transport.write(self._written(reply, cycle.keep_alive))
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _written(self, reply: Answer, keep_alive: bool) -> bytes:
        parts = [STATUS_LINE[reply.status]]
        for name, value in self.server_state.default_headers:
            parts += (name, b": ", value, b"\r\n")
        for name, value in reply.headers:
            parts += (name, b": ", value, b"\r\n")
        if not keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"content-length: %d\r\n\r\n" % len(reply.body), reply.body)
        return b"".join(parts)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the agents' side, which has bounds of its own.

        It stays a stranger until its token was looked at.
        """
        super().handle_websocket_upgrade()
        self._receiving = _NOTHING
        upgraded: Any = self.transport.get_protocol()
        if upgraded.checking is None:
            self.watch.lost(self)
        else:
            upgraded.checking.add_done_callback(lambda _: self.watch.lost(self))
