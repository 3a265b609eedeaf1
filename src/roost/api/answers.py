"""One finished HTTP response: a status, bytes and headers. It is its own ASGI application."""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from roost.parts.asker import Asker

Header = tuple[bytes, bytes]
Scope = MutableMapping[str, Any]

#: Encodes every body. What JSON does not know (in the details of an error) is written as text.
encoder = msgspec.json.Encoder(enc_hook=str)

#: Under this name the extensions of a scope have the connection itself.
CONNECTION = "roost.connection"

JSON: Header = (b"content-type", b"application/json")


class Receive(Protocol):
    """Where an ASGI application reads from."""

    async def __call__(self) -> Mapping[str, Any]: ...


class Send(Protocol):
    """Where an ASGI application writes to."""

    async def __call__(self, message: Any, /) -> None: ...


class Reply(Protocol):
    """What a handler returns: an ASGI application that knows its status."""

    @property
    def status(self) -> int: ...
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Answer:
    """A finished HTTP response."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: Sequence[Header] = (JSON,)) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. A 204 has neither a body nor its length."""
        headers = list(self.headers)
        if self.status != 204:
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def empty() -> Answer:
    """Return the empty response of a change: 204."""
    return Answer(204, headers=())


def body(status: int, reply: msgspec.Struct, *headers: Header) -> Answer:
    """Return a response with a struct as its JSON body."""
    return Answer(status, encoder.encode(reply), (JSON, *headers))


def authenticated(scope: Scope) -> None:
    """Tell a request's connection that a good token came on it."""
    connection = scope.get("extensions", {}).get(CONNECTION)
    if connection is not None:
        connection.authenticated()


def asker_of(scope: Scope) -> Asker:
    """Return who waits for the answer to a request: one that stays, if no connection says."""
    connection = scope.get("extensions", {}).get(CONNECTION)
    return Asker() if connection is None else cast(Asker, connection.asker)


def address_of(scope: Scope) -> str:
    """Return where a request comes from; behind a proxy, what that says."""
    client = scope.get("client")
    return str(client[0]) if client else ""
