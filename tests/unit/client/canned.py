"""A real HTTP server on loopback that answers what a test has laid out for it.

    with CannedServer() as server:
        server.on("GET", "/api/v1/vms/web-1", VM)
        server.on("POST", "/api/v1/vms", error(503, "unavailable", "busy"), Reply(201, VM))

Answers of one route are given in turn, and the last one again and again; an answer may be a
function of the request. `server.requests` holds what came. `Reply(drop=True)` reads the request
and closes the connection without an answer.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import msgspec


@dataclass(frozen=True)
class Reply:
    """One answer."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    stream: Iterable[str] | None = None  # chunks of a text/event-stream; then it ends


@dataclass(frozen=True)
class Seen:
    """One request that came."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]  # names in small letters
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def error(status: int, code: str, message: str, **more: Any) -> Reply:
    """Return an error in the one shape; `retry_after` becomes the header."""
    after = more.pop("retry_after", None)
    detail = {"code": code, "message": message, "details": {}, "hint": None} | more
    headers = {} if after is None else {"Retry-After": str(after)}
    return Reply(status, {"error": detail}, headers)


class CannedServer:
    """The server; `url` is where it listens."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self._routes: dict[tuple[str, str], list[Any]] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = False  # joined at the end: no test leaves a thread behind
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def on(self, method: str, path: str, *replies: Any) -> None:
        """Lay out the answers of a route; anything but a Reply is the body of a good one."""
        self._routes[method, path] = list(replies)

    def asked(self, method: str, path: str) -> list[Seen]:
        """Return the requests that one route got."""
        return [each for each in self.requests if (each.method, each.path) == (method, path)]

    def answer(self, seen: Seen) -> Reply:
        self.requests.append(seen)
        replies = self._routes.get((seen.method, seen.path))
        if not replies:
            return error(404, "not_found", f"nothing at {seen.method} {seen.path}")
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        reply = reply(seen) if callable(reply) else reply
        return reply if isinstance(reply, Reply) else Reply(200, reply)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._thread.join(10)
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 5  # a connection that a client forgot to close fails its test, soon

            def handle_any(self) -> None:
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                query = parse_qsl(parts.query, keep_blank_values=True)
                self.reply(server.answer(Seen(self.command, parts.path, query, headers, body)))

            do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

            def reply(self, reply: Reply) -> None:
                if reply.drop:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.stream is not None:
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Connection", "close")
                    self.end_headers()
                    for chunk in reply.stream:
                        self.wfile.write(chunk.encode())
                        self.wfile.flush()
                    self.close_connection = True
                    return
                text = reply.body if isinstance(reply.body, bytes) else b""
                if reply.body is not None and not isinstance(reply.body, bytes):
                    text = msgspec.json.encode(reply.body)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Say nothing: a test's output is its own."""

        return Handler
