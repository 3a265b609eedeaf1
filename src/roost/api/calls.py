"""One request of a route: who asks, what with, and what is answered.

    scope -> ready? -> token -> role -> path, query, headers -> body -> handler -> Answer

Every step refuses with an error of roost. The body is read only after the caller is known, and
decoded by one decoder per route.
"""

from asyncio import Event
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from roost.api import authorize
from roost.api.answers import Receive, Reply, Scope
from roost.api.authorize import Roles
from roost.api.ports import Plane, Principal
from roost.api.queries import Query as NoQuery
from roost.api.reading import QueryReader, RequestDecoder, idempotency_key, path_names, read_body
from roost.base.clock import Clock

Body = TypeVar("Body")
Query = TypeVar("Query")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all routes share. `stopping` is set when the server begins to shut down."""

    plane: Plane
    clock: Clock
    stopping: Event
    document: bytes
    max_body_bytes: int


@dataclass(frozen=True, slots=True)
class Call(Generic[Body, Query]):
    """What a handler gets. On a public route `who` is nobody; `key` is the Idempotency-Key."""

    site: Site
    plane: Plane
    who: Principal
    path: Mapping[str, str]
    query: Query
    body: Body
    token: str
    key: str | None
    digest: bytes
    headers: Mapping[bytes, bytes]


Handler = Callable[[Call[Any, Any]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One line of the table: the API's documentation and its behaviour at once.

    `statuses` are those of success; `errors` are codes beyond those that follow from the shape of
    the route (a token, a body, a name in the path).
    """

    method: str
    path: str
    handler: Handler
    roles: Roles
    summary: str
    statuses: tuple[int, ...] = (200,)
    errors: tuple[str, ...] = ()
    body: Any = None
    query: Any = None
    reply: Any = None
    media: str = "application/json"
    keyed: bool = False  # takes an Idempotency-Key
    streams: bool = False  # also as server-sent events


class _Nobody:
    """Who asks on a public route."""

    name, role, project, host = "anyone", "anyone", None, None


NOBODY = _Nobody()


class Endpoint:
    """A route bound to the site that serves it."""

    def __init__(self, route: Route, site: Site) -> None:
        self.route = route
        self._site = site
        self._asks_who = route.roles not in (authorize.ANYONE, authorize.JOINING)
        self._decoder = None if route.body is None else RequestDecoder(route.body)
        # Probes may ask with whatever they like; elsewhere an unknown parameter is a mistake.
        kind = route.query or (None if route.roles == authorize.ANYONE else NoQuery)
        self._query = None if kind is None else QueryReader(kind)

    async def run(self, scope: Scope, receive: Receive) -> Reply:
        """Serve one request; raises errors of roost."""
        route, plane = self.route, self._site.plane
        headers: dict[bytes, bytes] = dict(scope["headers"])
        who: Principal = NOBODY
        token = ""
        if route.roles != authorize.ANYONE:
            plane.require_ready()
            token = authorize.bearer(headers.get(b"authorization"))
        if self._asks_who:
            who = await authorize.principal(plane.access, token)
            authorize.allow(route.roles, who)
        path = path_names(scope["path_params"])
        query = None if self._query is None else self._query.read(scope["query_string"])
        key = idempotency_key(headers.get(b"idempotency-key")) if route.keyed else None
        body, digest = None, b""
        if self._decoder is not None:
            raw = await read_body(
                headers.get(b"content-length"), receive, self._site.max_body_bytes
            )
            body = self._decoder.decode(raw)
            if key is not None:
                digest = blake2b(raw, digest_size=16).digest()
        return await route.handler(
            Call(self._site, plane, who, path, query, body, token, key, digest, headers)
        )
