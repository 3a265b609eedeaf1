"""The short road of the routes that carry the load (`Route.hot`): creating one VM, and many.

Answers exactly as the table's own road would (a test compares them), with less between the socket
and the use case: no router, no request object, one pass over the headers. A hot route has a body
and a key, no query and no name in its path.
"""

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Protocol

from roost.api import authorize
from roost.api.answers import (
    Answer,
    Header,
    Receive,
    Scope,
    Send,
    address_of,
    asker_of,
    authenticated,
)
from roost.api.calls import Site, answer_of
from roost.api.errors import Failures
from roost.api.reading import RequestDecoder, idempotency_key, read_body
from roost.parts.access import Principal
from roost.parts.asker import Asker
from roost.parts.routes import Call, Route

#: All of a body, or what reads it, given the length that was announced.
Body = bytes | Callable[[bytes | None], Awaitable[bytes]]
#: Who asks, and the token.
Known = tuple[Principal, str]


class Meter(Protocol):
    """Where finished requests are counted. `route` is the path as the table writes it."""

    def request(self, method: str, route: str, status: int, seconds: float) -> None: ...


class FastLane:
    """Serves the hot routes."""

    def __init__(
        self, table: Sequence[Route], site: Site, failures: Failures, meter: Meter
    ) -> None:
        self.most_bytes = site.max_body_bytes
        self._access = site.plane.access
        self._gate = site.gate
        self._require_ready = site.plane.require_ready
        self._failures = failures
        self._meter = meter
        self._monotonic = site.clock.monotonic
        self._lanes = {
            route.path: (route, RequestDecoder(route.body))
            for route in table
            if route.hot and route.method == "POST"
        }

    def takes(self, path: str) -> bool:
        """Say whether a POST is for a hot route."""
        return path in self._lanes

    def known(self, authorization: bytes | None) -> Known | None:
        """Return who asks, and the token, if that is known without asking the ledger."""
        if authorization is None or authorization[:7].lower() != b"bearer ":
            return None
        try:
            token = authorization[7:].strip().decode("ascii")
        except UnicodeDecodeError:
            return None
        who = self._access.principal(token)
        return None if who is None else (who, token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application."""

        async def read(length: bytes | None) -> bytes:
            return await read_body(length, receive, self.most_bytes)

        answer = await self.answer(scope["path"], scope["headers"], read, scope=scope)
        await answer(scope, receive, send)

    async def answer(
        self,
        path: str,
        headers: Sequence[Header],
        body: Body,
        *,
        known: Known | None = None,
        scope: Scope | None = None,
        asker: Asker | None = None,
    ) -> Answer:
        """Return the answer to one request, whose body is here or is read when it is wanted.

        Who asks is known by now, or is found out by the scope's gate.
        """
        began, scope = self._monotonic(), scope or {}
        try:
            waits = asker or asker_of(scope)
            answer = await self._run(path, headers, body, known, scope, waits, began)
        except Exception as error:  # noqa: BLE001 - a bug in one request must not end the others
            answer = self._failures.answer(error)
        self._meter.request("POST", path, answer.status, self._monotonic() - began)
        return answer

    async def _run(
        self,
        path: str,
        headers: Sequence[Header],
        body: Body,
        known: Known | None,
        scope: Scope,
        asker: Asker,
        now: float,
    ) -> Answer:
        route, decoder = self._lanes[path]
        self._require_ready()
        authorization = length = key_header = None
        for name, value in headers:
            if name == b"authorization":
                if authorization is not None:
                    raise authorize.said_twice(name)
                authorization = value
            elif name == b"content-length":
                length = value
            elif name == b"idempotency-key":
                if key_header is not None:
                    raise authorize.said_twice(name)
                key_header = value
        if known is None:
            who, token = await self._gate.admit(authorization, address_of(scope))
            authenticated(scope)
        else:
            who, token = known
            self._gate.ask(token, now)
        authorize.allow(route.roles, who)
        key = idempotency_key(key_header)
        raw = body if isinstance(body, bytes) else await body(length)
        asked = decoder.decode(raw)
        digest = b"" if key is None else blake2b(raw, digest_size=16).digest()
        call = Call(who, {}, None, asked, token, key, digest, {}, asker)
        return answer_of(route, await route.call(call))
