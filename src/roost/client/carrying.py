"""What both clients share below their methods: the manner of a conversation, and httpx.

Of httpx that is the settings of a connection, and its failures as `Lost`.
"""

import ipaddress
import ssl
from collections.abc import Sequence
from functools import partial
from random import Random, SystemRandom
from typing import Any
from urllib.parse import urlsplit

import httpx

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest
from roost.base.ids import IdSource
from roost.client.conversation import Answered, Lost, Manner, Patience, Send

_CONNECT_S = 5.0

#: Failures before the first byte went out: the server cannot have acted on the request.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


def checked_server(server: str) -> str:
    """Return the address without a slash at its end, or refuse what is no address."""
    hint = "Maybe http://127.0.0.1:7070?"
    try:
        parts = urlsplit(server)
        port_given = parts.port is None or parts.port > 0
    except ValueError as error:
        raise InvalidRequest(f"server {server!r} is no address: {error}", hint=hint) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_given:
        raise InvalidRequest(f"server {server!r} is no address of a server", hint=hint)
    if parts.query or parts.fragment:
        raise InvalidRequest(f"server {server!r} has more than an address", hint=hint)
    return server.rstrip("/")


def checked_token(token: str | None) -> str | None:
    """Return the token, or refuse one that no header can carry."""
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise InvalidRequest(
            "the token has characters that no token has",
            hint="Maybe it was copied with a line break or with quotes.",
        )
    return token or None


def manner(
    servers: Sequence[str],
    token: str | None,
    patience: Patience,
    clock: Clock,
    random: Random | None,
) -> Manner:
    """Return how a client converses with the servers of a control plane."""
    random = random or SystemRandom()
    new_key = partial(IdSource(clock.wall_ms, random).new, "key")
    first, *others = servers
    return Manner(
        first, checked_token(token), patience, clock.monotonic, random, new_key, tuple(others)
    )


def connection(servers: Sequence[str], timeout_s: float, ca_file: str | None) -> dict[str, Any]:
    """Return the settings of httpx for these servers."""
    own = all(_is_loopback(urlsplit(server).hostname or "") for server in servers)
    return {
        "base_url": servers[0],
        "timeout": httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
        # No proxy of the environment stands between a machine and itself.
        "trust_env": not own,
        "verify": _verification(servers, ca_file),
    }


def _verification(servers: Sequence[str], ca_file: str | None) -> ssl.SSLContext | bool:
    if not any(server.startswith("https:") for server in servers):
        return False  # not looked at, and not worth 20 ms of loading certificates
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(f"cannot read certificates from {ca_file!r}: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def request(send: Send) -> dict[str, Any]:
    """Return the arguments of httpx for what is to be sent."""
    return {
        "method": send.method,
        "url": send.server + send.path,
        "params": httpx.QueryParams(send.query),
        "headers": send.headers,
        "content": send.content,
    }


def lost(error: httpx.TransportError) -> Lost:
    """Return a failure of the connection in our own terms."""
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        raise InvalidRequest(f"this cannot be sent: {error}") from error
    if isinstance(error, httpx.TimeoutException):
        problem = "no connection in time" if isinstance(error, _NOT_SENT) else "no answer in time"
    elif _was_refused(error):
        problem = "connection refused"
    else:
        problem = (str(error) or type(error).__name__).rstrip(".")
    return Lost(problem, sent=not isinstance(error, _NOT_SENT))


def _was_refused(error: BaseException | None) -> bool:
    """Say whether a refusal is at the bottom of it: asyncio words that otherwise than sockets."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False


def answered(response: httpx.Response, content: bytes) -> Answered:
    """Return an answer in our own terms."""
    return Answered(response.status_code, content, response.headers.get("retry-after"))
