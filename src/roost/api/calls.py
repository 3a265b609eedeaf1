"""One request of a route: who asks, what with, and what is answered.

    scope -> ready? -> token -> rate -> role -> path, query, headers -> body -> call -> Answer

Every step refuses with an error of roost. The body is read only after the caller is known, and
decoded by one decoder per route.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from roost.api import authorize
from roost.api.answers import (
    Answer,
    Header,
    Receive,
    Reply,
    Scope,
    address_of,
    asker_of,
    authenticated,
    body,
    empty,
)
from roost.api.events import event_stream
from roost.api.reading import QueryReader, RequestDecoder, idempotency_key, path_names, read_body
from roost.api.sse import Streams
from roost.base.clock import Clock
from roost.parts.access import Principal
from roost.parts.roles import ANYONE, JOINING
from roost.parts.routes import Answered, Call, Route
from roost.parts.serving import ServedPlane
from roost.wire.queries import Query as NoQuery

REPLAYED: Header = (b"idempotency-replayed", b"true")
#: A page of the API needs nothing from elsewhere.
PAGE: Header = (b"content-security-policy", b"default-src 'self' 'unsafe-inline'")
NOBODY = Principal("anyone", "anyone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all routes share."""

    plane: ServedPlane
    clock: Clock
    max_body_bytes: int
    streams: Streams
    gate: authorize.Gate


class Endpoint:
    """A route bound to the site that serves it."""

    def __init__(self, route: Route, site: Site) -> None:
        self.route = route
        self._site = site
        self._decoder = None if route.body is None else RequestDecoder(route.body)
        # Probes may ask with whatever they like; elsewhere an unknown parameter is a mistake.
        kind = route.query or (None if route.roles == ANYONE else NoQuery)
        self._query = None if kind is None else QueryReader(kind)

    async def run(self, scope: Scope, receive: Receive) -> Reply:
        """Serve one request; raises errors of roost."""
        route, plane = self.route, self._site.plane
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if len(headers) != len(scope["headers"]):
            authorize.refuse_repeated(scope["headers"])
        who, token, address = NOBODY, "", address_of(scope)
        if route.roles == ANYONE:
            self._site.gate.ask_unknown(address, route.weight)
        else:
            plane.require_ready()
            who, token = await self._site.gate.admit(headers.get(b"authorization"), address)
            authenticated(scope)
            if route.roles == JOINING:
                authorize.allow_joining(who)
            else:
                authorize.allow(route.roles, who)
        path = path_names(scope["path_params"])
        query = None if self._query is None else self._query.read(scope["query_string"])
        key = idempotency_key(headers.get(b"idempotency-key")) if route.keyed else None
        decoded, digest = None, b""
        if self._decoder is not None:
            raw = await read_body(
                headers.get(b"content-length"), receive, self._site.max_body_bytes
            )
            decoded = self._decoder.decode(raw)
            if key is not None:
                digest = blake2b(raw, digest_size=16).digest()
        asker = asker_of(scope)
        call = Call(who, path, query, decoded, token, key, digest, headers, asker)
        if route.stream is not None and b"text/event-stream" in headers.get(b"accept", b""):
            return event_stream(route.stream, call, plane.access, self._site.streams)
        return answer_of(route, await route.call(call))


def answer_of(route: Route, found: Any) -> Answer:
    """Return the result of a route's call as a response."""
    if isinstance(found, Answered):
        headers = (REPLAYED,) if found.replayed else ()
        return body(found.status, found.body, *headers)
    if found is None:
        return empty()
    if isinstance(found, bytes):
        kind: Header = (b"content-type", route.media.encode())
        page = route.media.startswith("text/html")
        return Answer(route.statuses[0], found, (kind, PAGE) if page else (kind,))
    return body(route.statuses[0], found)
