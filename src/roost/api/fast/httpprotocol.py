"""HTTP/1.1 as uvicorn speaks it, with a short cut for the requests that carry the load.

    headers -> small POST for the fast lane?  yes: body -> FastLane.answer -> one write
                                              no:  uvicorn's own way through ASGI

The short cut leaves out the ASGI messages around a request whose body is small and announced, and
writes head and body at once (one system call and one packet instead of two). What is not HTTP at
all is refused in the one shape of errors too.
"""

import asyncio
import logging
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from roost.api.answers import Answer, Header
from roost.api.errors import Malformed, answer
from roost.api.fastlane import FastLane

logger = logging.getLogger("roost.api")

#: Largest body that is taken before the caller is known; larger ones go the long way.
SMALL_BYTES = 64 * 1024


def http_protocol(lane: FastLane | None) -> type[asyncio.Protocol]:
    """Return the class that uvicorn makes one of for each connection."""

    class BoundHttp(LeanHttp):
        """A connection to this application."""

    BoundHttp.lane = lane
    return BoundHttp


class LeanCycle:
    """One request on the short cut, in the shape that uvicorn's protocol expects of a cycle."""

    __slots__ = (
        "body",
        "disconnected",
        "headers",
        "keep_alive",
        "more_body",
        "path",
        "response_complete",
    )

    def __init__(self, path: str, headers: list[Header], keep_alive: bool) -> None:
        self.path = path
        self.headers = headers
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


class LeanHttp(HttpToolsProtocol):
    """One HTTP connection, with a short cut for creates."""

    lane: ClassVar[FastLane | None] = None

    def on_headers_complete(self) -> None:
        """Route a request: the short cut for creates, or uvicorn's own way."""
        path = self._short_cut()
        if path is None:
            super().on_headers_complete()
        else:
            # The connection's own list is another one as soon as the next request begins.
            keep_alive = self.parser.should_keep_alive()
            self.cycle = LeanCycle(path, self.headers, keep_alive)  # type: ignore[assignment]

    def _short_cut(self) -> str | None:
        """Return the path of a request that may take the short cut."""
        before: Any = self.cycle
        if (
            self.lane is None
            or self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
            or self.expect_100_continue
            or not (before is None or before.response_complete)
        ):
            return None
        length = upgrade = None
        for name, value in self.headers:
            if name == b"content-length":
                length = value
            elif name == b"upgrade" or name == b"transfer-encoding":
                upgrade = value
        if length is None or upgrade is not None or not length.isdigit():
            return None
        path = self.url.decode("ascii", "replace")
        small = int(length) <= min(SMALL_BYTES, self.lane.most_bytes)
        return path if small and self.lane.takes(path) else None

    def on_message_complete(self) -> None:
        """Serve a request that is all here."""
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
        reply = await self.lane.answer(cycle.path, cycle.headers, bytes(cycle.body))
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

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self.transport.write(self._written(answer(Malformed("this is not HTTP")), False))
        self.transport.close()
