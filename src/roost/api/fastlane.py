"""The short road of the two routes that carry the load: creating one VM, and many.

Answers exactly as the table's own road would (a test compares them), with less between the socket
and the use case: no router, no request object, one pass over the headers.
"""

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any

from roost.api import authorize, routes, vms
from roost.api.answers import Answer, Header, Receive, Scope, Send
from roost.api.calls import Site
from roost.api.errors import Failures
from roost.api.ports import Created, CreatedMany, Meter
from roost.api.reading import RequestDecoder, idempotency_key, read_body
from roost.wire.bodies import CreateVM, CreateVMs

_ONE = "/api/v1/vms"
_MANY = "/api/v1/vms:batch"


class FastLane:
    """Serves the two routes."""

    def __init__(self, site: Site, failures: Failures, meter: Meter) -> None:
        self._site = site
        self._access = site.plane.access
        self._require_ready = site.plane.require_ready
        self._failures = failures
        self._meter = meter
        self._monotonic = site.clock.monotonic
        table = {route.path: route for route in routes.ROUTES if route.method == "POST"}
        one, many = table[_ONE], table[_MANY]
        admit = site.plane.admit
        self._lanes = {
            _ONE: _Lane(one.roles, RequestDecoder(CreateVM), admit.create, vms.created),
            _MANY: _Lane(
                many.roles, RequestDecoder(CreateVMs), admit.create_many, vms.created_many
            ),
        }

    def takes(self, path: str) -> bool:
        """Say whether a POST is for one of the two."""
        return path in self._lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request as an ASGI application."""
        answer = await self.answer(scope["path"], scope["headers"], receive)
        await answer(scope, receive, send)

    async def answer(self, path: str, headers: Sequence[Header], receive: Receive) -> Answer:
        """Return the answer to one request."""
        began = self._monotonic()
        answer = await self._failures.catch(self._run(self._lanes[path], headers, receive))
        self._meter.request("POST", path, answer.status, self._monotonic() - began)
        return answer

    async def _run(self, lane: "_Lane", headers: Sequence[Header], receive: Receive) -> Answer:
        self._require_ready()
        authorization = length = key_header = None
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == b"content-length":
                length = value
            elif name == b"idempotency-key":
                key_header = value
        who = await authorize.principal(self._access, authorize.bearer(authorization))
        authorize.allow(lane.roles, who)
        key = idempotency_key(key_header)
        raw = await read_body(length, receive, self._site.max_body_bytes)
        body = lane.decoder.decode(raw)
        digest = b"" if key is None else blake2b(raw, digest_size=16).digest()
        return lane.answer(await lane.create(body, who, key, digest))


class _Lane:
    """One of the two routes."""

    __slots__ = ("answer", "create", "decoder", "roles")

    def __init__(
        self,
        roles: authorize.Roles,
        decoder: RequestDecoder,
        create: Callable[[Any, Any, str | None, bytes], Awaitable[Created | CreatedMany]],
        answer: Callable[[Any], Answer],
    ) -> None:
        self.roles = roles
        self.decoder = decoder
        self.create = create
        self.answer = answer
