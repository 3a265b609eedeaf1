"""From an answer that is no success back to the error that the server meant.

The families of `roost.base.errors` are found by their code, so a caller catches `Conflict` or
`NoFit` as if it had called the server's own code; message, details and hint are the server's.
"""

from collections.abc import Iterator
from http import HTTPStatus

import msgspec

from roost.base.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    InvariantBroken,
    NoFit,
    NotFound,
    RoostError,
    Unauthorized,
    Unavailable,
)
from roost.wire.bodies import ErrorBody, ErrorDetail

#: Codes of a request that fits nowhere; each error is a `NoFit` and has one of them as its code.
NO_FIT_CODES = ("no_available_agents", "insufficient_resources", "constraints_unsatisfied")

#: What a proxy or an unknown server may say by status alone.
_BY_STATUS: dict[int, type[RoostError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
_decoder = msgspec.json.Decoder(ErrorBody)


def error_of(status: int, content: bytes) -> tuple[RoostError, bool]:
    """Return the error, and whether it is roost that speaks and not something in between."""
    try:
        detail = _decoder.decode(content).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _by_status(status)(_bare(status), status=status), False
    kind = NoFit if detail.code in NO_FIT_CODES else _BY_CODE.get(detail.code, _by_status(status))
    return _made(kind, detail), True


def _made(kind: type[RoostError], detail: ErrorDetail) -> RoostError:
    """Return an error of a kind without going through its own constructor, which takes parts."""
    error = kind.__new__(kind)
    RoostError.__init__(error, detail.message, hint=detail.hint)
    error.details = detail.details
    if error.code != detail.code:
        error.code = detail.code  # type: ignore[misc]
    return error


def _by_status(status: int) -> type[RoostError]:
    return _BY_STATUS.get(status, InvariantBroken if status >= 500 else InvalidRequest)


def _bare(status: int) -> str:
    known = {each.value: each.phrase for each in HTTPStatus}
    return f"the server answered {status} {known.get(status, '')}".rstrip()


def _kinds(family: type[RoostError]) -> Iterator[type[RoostError]]:
    yield family
    for kind in family.__subclasses__():
        yield from _kinds(kind)


#: Where a class shares its code with the one it is a kind of, that one is meant.
_BY_CODE = {kind.code: kind for kind in reversed([*_kinds(RoostError)]) if kind is not RoostError}
