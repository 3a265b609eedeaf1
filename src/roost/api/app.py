"""The HTTP application, made from the table, a control plane and a clock.

    uvicorn -> App -> fastlane                          POST /api/v1/vms, /api/v1/vms:batch
                  \\-> Litestar (router) -> Endpoint     every other route
            -> agentsocket                              WebSocket /api/v1/agents/connect

Building starts nothing; `server` opens the socket.
"""

import asyncio
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from litestar import Litestar, Request, Response
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from roost.api.answers import Answer, Receive, Scope, Send
from roost.api.authorize import Gate
from roost.api.calls import Endpoint, Site
from roost.api.errors import Failures, answer
from roost.api.fastlane import FastLane, Meter
from roost.api.limits import Limits
from roost.api.pages import Pages
from roost.api.sse import Streams
from roost.base.clock import Clock
from roost.base.errors import NotFound
from roost.base.ids import IdSource
from roost.parts.routes import Route, check_routes
from roost.parts.serving import ServedPlane

#: Largest body that is read: a batch of 10,000 VMs with constraints fits.
MAX_BODY_BYTES = 16 * 2**20


class NoMeter:
    """A meter that counts nothing."""

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count nothing of a request."""


class App:
    """The ASGI application. `stopping` ends the streams; the server sets it."""

    def __init__(
        self,
        router: Callable[[], Litestar],
        lane: FastLane | None,
        limits: Limits,
        gate: Gate,
        stopping: asyncio.Event,
    ) -> None:
        self.lane = lane
        self.limits = limits
        self.gate = gate
        self.stopping = stopping
        self._make_router = router

    @cached_property
    def _router(self) -> Any:
        return self._make_router()

    def prepare(self) -> None:
        """Make the router now, which takes a while: the first request would wait for it."""
        _ = self._router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if scope["type"] == "http":
            if _is_sloppy(scope):
                nothing = NotFound(f"there is nothing at {scope['path']}", path=scope["path"])
                await answer(nothing)(scope, receive, send)
                return
            if (
                self.lane is not None
                and scope["method"] == "POST"
                and self.lane.takes(scope["path"])
                and not scope["query_string"]
            ):
                await self.lane(scope, receive, send)
                return
            if scope["method"] == "HEAD" and not scope["path"].startswith("/api/"):
                scope = {**scope, "method": "GET"}  # the server leaves the body out by itself
        await self._router(scope, receive, send)


def _is_sloppy(scope: Scope) -> bool:
    # The router would tidy such paths up, and then a VM with an empty name is the list of VMs.
    path: str = scope["path"]
    return (
        "//" in path or path.endswith("/") or b"%2f" in scope["raw_path"].lower()
    ) and path != "/"


def build_app(
    plane: ServedPlane,
    *,
    clock: Clock,
    ids: IdSource,
    max_body_bytes: int = MAX_BODY_BYTES,
    meter: Meter | None = None,
    fast: bool = True,
    limits: Limits | None = None,
) -> App:
    """Make the application. Without `fast` every route takes the same road."""
    pages = Pages()
    table = whole_table(plane, pages)
    check_routes(table)
    pages.table = table
    failures = Failures(lambda: ids.new("failure"))
    meter = meter or NoMeter()
    limits, stopping = limits or Limits(), asyncio.Event()
    site = Site(
        plane=plane,
        clock=clock,
        max_body_bytes=max_body_bytes,
        streams=Streams(limits, clock, stopping),
        gate=Gate(plane.access, limits, clock.monotonic),
    )
    endpoints = [Endpoint(route, site) for route in table]
    router = partial(_router, endpoints, failures, clock, meter)
    lane = FastLane(table, site, failures, meter) if fast else None
    return App(router, lane, limits, site.gate, stopping)


def whole_table(plane: ServedPlane, pages: Pages) -> tuple[Route, ...]:
    """Return every route there is: those of the plane, and the pages about them."""
    return (*plane.routes, *pages.routes())


def _router(endpoints: list[Endpoint], failures: Failures, clock: Clock, meter: Meter) -> Litestar:
    def refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
        answer = failures.routing(error, request.method, request.url.path)
        headers = {name.decode(): value.decode() for name, value in answer.headers}
        return Response(answer.body, status_code=answer.status, headers=headers)

    handlers = [_handler(endpoint, failures, clock, meter) for endpoint in endpoints]
    return Litestar(
        # First the methods: later ones the router takes for a second answer to its own OPTIONS.
        route_handlers=[*_options([endpoint.route for endpoint in endpoints]), *handlers],
        exception_handlers={HTTPException: refused},
        openapi_config=None,
        logging_config=None,
    )


def _handler(
    endpoint: Endpoint, failures: Failures, clock: Clock, meter: Meter
) -> HTTPRouteHandler:
    method, path = endpoint.route.method, endpoint.route.path

    async def handle(request: Request[Any, Any, Any]) -> ASGIApp:
        began = clock.monotonic()
        scope: Any = request.scope
        receive: Any = request.receive
        reply: Any = await failures.catch(endpoint.run(scope, receive))
        meter.request(method, path, reply.status, clock.monotonic() - began)
        return reply  # type: ignore[no-any-return]

    decorate = HTTPRouteHandler(
        path.replace("}", ":str}"),
        http_method=HttpMethod(method),
        name=f"{method} {path}",
        status_code=200,  # not used: replies know their own
    )
    return decorate(handle)


def _options(table: list[Route]) -> list[HTTPRouteHandler]:
    """Return the handlers that say which methods a path has; the router's own know but one."""
    methods: dict[str, list[str]] = {}
    for route in table:
        methods.setdefault(route.path, ["OPTIONS"]).append(route.method)
    return [_options_of(path, ", ".join(sorted(allowed))) for path, allowed in methods.items()]


def _options_of(path: str, allow: str) -> HTTPRouteHandler:
    async def handle() -> ASGIApp:
        reply: Any = Answer(204, headers=((b"allow", allow.encode()),))
        return reply  # type: ignore[no-any-return]

    decorate = HTTPRouteHandler(
        path.replace("}", ":str}"), http_method=HttpMethod.OPTIONS, status_code=200
    )
    return decorate(handle)
