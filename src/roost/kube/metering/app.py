"""The exporter behind a socket: a handful of paths, one JSON shape of errors, a server to stop.

GET  /metrics                 what Prometheus reads
GET  /health                  what is shown and how old the view is; 503 while a watch is broken
GET  /nodes/NAME              one node with its VMs
POST /refresh                 read everything anew now
POST /scenario[?name=&wait_s=]  load a scenario; GET tells where its VMs went
POST /feedback[?wait_s=]      {"migrations": [{"vm_id", "from_node", "to_node"}, ...]}
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
import uvicorn
from msgspec import Struct

from roost.api.answers import JSON, Answer, Receive, Scope, Send, encoder
from roost.api.errors import Failures, Malformed, MethodNotAllowed, status_of
from roost.api.server import bind
from roost.base.clock import Clock, RealClock
from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    RoostError,
    TooLarge,
    Unavailable,
)
from roost.base.ids import IdSource
from roost.kube.metering.exporter import Exporter
from roost.kube.metering.sources import Asked

PROMETHEUS = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_MOST_BODY = 32 * 2**20
#: How long an answer waits for the scheduler, unless it is told; and at most.
WAIT_S, _MOST_WAIT_S = 10.0, 600.0
_GRACE_S = 5
#: Errors that only Kubernetes makes, by what the caller does next.
_FAMILIES = ((NotFound, 404), (Conflict, 409), (Unavailable, 503), (InvalidRequest, 422))


class Feedback(Struct, kw_only=True, forbid_unknown_fields=True):
    """What POST /feedback takes."""

    migrations: list[Asked]


class Request:
    """One HTTP request, parsed."""

    def __init__(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        self.path, self.body = path, body
        self._query = query

    def asked(self, name: str) -> str | None:
        """Return a part of the query."""
        return self._query[name][-1] if name in self._query else None

    @property
    def wait_s(self) -> float:
        """Return how long the caller would wait."""
        text = self.asked("wait_s")
        try:
            seconds = float(text) if text is not None else WAIT_S
        except ValueError:
            seconds = -1.0
        if not 0.0 <= seconds <= _MOST_WAIT_S:
            raise InvalidRequest(f"wait_s {text!r} is not within 0 and {_MOST_WAIT_S:g}")
        return seconds


Handler = Callable[[Request], Awaitable[Answer]]


class App:
    """The ASGI application. Without `changes` it answers questions and does nothing else."""

    def __init__(
        self, exporter: Exporter, *, clock: Clock | None = None, changes: bool = True
    ) -> None:
        self._exporter, self._changes = exporter, changes
        ids = IdSource((clock or RealClock()).wall_ms)
        self._failures = Failures(lambda: ids.new("failure"))
        self._routes: dict[str, dict[str, Handler]] = {
            "/metrics": {"GET": self._metrics},
            "/health": {"GET": self._health},
            "/refresh": {"POST": self._refresh},
            "/scenario": {"GET": self._scenario, "POST": self._load},
            "/feedback": {"POST": self._feedback},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["type"] != "http":
            return
        answer = await self._failures.catch(self._answer(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        try:
            path = unquote(scope["raw_path"].decode("latin-1").partition("?")[0])
            handler = self._route(scope["method"], path)
            if scope["method"] == "POST":
                self._refuse_pages(scope)
            query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            return await handler(Request(path, query, await _body(receive)))
        except RoostError as error:
            # Known to roost's own API, or one of those that only Kubernetes makes.
            if status_of(error) != 500 or not isinstance(error, _KUBE):
                raise
            status = next(code for kind, code in _FAMILIES if isinstance(error, kind))
            return Answer(status, encoder.encode(error.as_json()))

    def _route(self, method: str, path: str) -> Handler:
        if path.startswith("/nodes/"):
            methods: dict[str, Handler] = {"GET": self._node}
        elif path in self._routes:
            methods = self._routes[path]
        else:
            raise NotFound(f"there is nothing at {path}", path=path)
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise MethodNotAllowed(method, ", ".join(methods))
        return handler

    def _refuse_pages(self, scope: Scope) -> None:
        """Refuse what a web page sends: it could come from anywhere through a user's browser."""
        if any(name == b"origin" for name, _ in scope["headers"]):
            raise Forbidden("the exporter takes no requests from web pages")

    def _refuse_changes(self) -> None:
        if not self._changes:
            raise Forbidden(
                "this exporter changes nothing: other machines can reach it",
                hint="Maybe start it with --allow-changes, or on 127.0.0.1.",
            )

    # One function for each path

    async def _metrics(self, request: Request) -> Answer:
        return Answer(200, self._exporter.metrics(), (PROMETHEUS,))

    async def _health(self, request: Request) -> Answer:
        health = self._exporter.health()
        return _json(health, 200 if health.status == "ok" else 503)

    async def _refresh(self, request: Request) -> Answer:
        return _json(await self._exporter.refresh())

    async def _node(self, request: Request) -> Answer:
        return _json(self._exporter.node(request.path.removeprefix("/nodes/")))

    async def _scenario(self, request: Request) -> Answer:
        return _json(self._exporter.scenario())

    async def _load(self, request: Request) -> Answer:
        self._refuse_changes()
        return _json(await self._exporter.load(request.body, request.asked("name"), request.wait_s))

    async def _feedback(self, request: Request) -> Answer:
        self._refuse_changes()
        try:
            asked = msgspec.json.decode(request.body, type=Feedback)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"the feedback is wrong: {error}") from error
        except msgspec.DecodeError as error:
            raise Malformed(f"the feedback is no JSON: {error}") from error
        results = await self._exporter.feedback(asked.migrations, request.wait_s)
        return _json({"accepted": sum(each.accepted for each in results), "results": results})


_KUBE = tuple(kind for kind, _ in _FAMILIES)


def _json(reply: Any, status: int = 200) -> Answer:
    return Answer(status, encoder.encode(reply), (JSON,))


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("the caller went away")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > _MOST_BODY:
            raise TooLarge(f"the body is larger than {_MOST_BODY} bytes")
        if not message.get("more_body"):
            return b"".join(pieces)


class _Server(uvicorn.Server):
    """A server that says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()


class Running(Struct):
    """An exporter that is served."""

    url: str
    serving: asyncio.Task[None]


@asynccontextmanager
async def serving(
    exporter: Exporter,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    clock: Clock | None = None,
    changes: bool = True,
) -> AsyncIterator[Running]:
    """Start an exporter and serve it until the block ends; `serving` ends early at a signal."""
    bound = bind(host, port)
    try:
        await exporter.start()
        app = App(exporter, clock=clock, changes=changes)
        server = _Server(
            uvicorn.Config(
                app, interface="asgi3", lifespan="off", log_config=None, access_log=False,
                server_header=False, timeout_graceful_shutdown=_GRACE_S, ws="none",
            )
        )  # fmt: skip
        task = asyncio.create_task(server.serve(sockets=[bound]), name="exporter")
        try:
            up = asyncio.create_task(server.up.wait())
            await asyncio.wait((up, task), return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
            name = f"[{host}]" if ":" in host else host
            yield Running(f"http://{name}:{bound.getsockname()[1]}", task)
        finally:
            server.should_exit = True
            await asyncio.gather(task, return_exceptions=True)
            await exporter.stop()
    finally:
        bound.close()
