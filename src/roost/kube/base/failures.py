"""What the API server or the way to it refuses, as roost's errors that say what to do next."""

import ssl

import aiohttp
import msgspec

from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    RoostError,
    Unauthorized,
    Unavailable,
)


class AlreadyExists(Conflict):
    """An object of this name is there already."""

    code = "already_exists"


class Gone(Conflict):
    """The version that a watch asked for is no longer kept: list again."""

    code = "gone"


class TooManyRequests(Unavailable):
    """The server, a disruption budget or a webhook says: not now."""

    code = "too_many_requests"


def refused(status: int, body: bytes, asked: str) -> RoostError:
    """Return the error of an answer that is not a success; `asked` names verb and path."""
    try:
        told = msgspec.json.decode(body)
        message, reason = str(told.get("message") or ""), str(told.get("reason") or "")
    except (msgspec.DecodeError, AttributeError):
        message, reason = body[:300].decode(errors="replace"), ""
    # The server's own words name what was asked for; others do not.
    said = message if reason else f"{asked}: {message or 'HTTP ' + str(status)}"
    if status == 401:
        return Unauthorized(
            said, hint="Maybe the kubeconfig's certificate or token has expired; renew it."
        )
    if status == 403:
        return Forbidden(
            said, hint="Maybe this user lacks a role; docs/how-to/kubernetes.md lists the rights."
        )
    if status == 404:
        return NotFound(said)
    if status == 409:
        return AlreadyExists(said) if reason == "AlreadyExists" else Conflict(said)
    if status == 410:
        return Gone(said)
    if status == 429:
        return TooManyRequests(said)
    if status >= 500:
        return Unavailable(said)
    return InvalidRequest(said)


def unreachable(error: Exception, server: str) -> RoostError:
    """Return the error of a server that could not be asked at all."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause: BaseException = error.certificate_error
        text = getattr(cause, "verify_message", "") or str(cause)
        hint = (
            "Maybe its certificate has to be renewed." if "expired" in text
            else "Maybe the kubeconfig belongs to another cluster."
        )  # fmt: skip
        return InvalidRequest(f"{server} shows a certificate we cannot trust: {text}", hint=hint)
    if isinstance(error, ssl.SSLError | aiohttp.ClientSSLError):
        # How a refused client certificate looks: TLS 1.3 tells it only with the first answer.
        return Unauthorized(
            f"{server} ended the connection: {error}",
            hint="Maybe the kubeconfig's client certificate has expired; renew it.",
        )
    text = str(error) or type(error).__name__
    return Unavailable(
        f"{server} does not answer: {text}", hint="Maybe `roost kube status` tells more."
    )
