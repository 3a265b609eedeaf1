"""Errors as HTTP: a table from code to status, one JSON shape, and the place that catches all.

Everything that goes wrong while a request is served ends in `Failures.answer`: what roost raises
knows its code; what the router refuses (no such path, wrong method) is brought into the same shape;
anything else is a bug, logged under an id that the answer names, and says no more than that.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from litestar.exceptions import HTTPException

from roost.api.answers import JSON, Answer, Header, Reply, encoder
from roost.base.errors import InvalidRequest, InvariantBroken, NotFound, RoostError

Some = TypeVar("Some", bound=Reply)

logger = logging.getLogger("roost.api")

#: The status of each code. `invalid_request` is 400 when it could not be read (`Malformed`).
STATUS: Mapping[str, int] = {
    "invalid_request": 422,
    "invalid_strategy": 422,
    "invalid_fleet_file": 422,
    "invalid_rule": 422,
    "request_too_large": 413,
    "request_head_too_large": 431,
    "path_too_long": 414,
    "request_timed_out": 408,
    "unauthorized": 401,
    "forbidden": 403,
    "quota_exceeded": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "events_gone": 410,
    "events_rewritten": 409,
    "constraints_unsatisfied": 409,
    "too_many_requests": 429,
    "no_available_agents": 503,
    "insufficient_resources": 503,
    "placement_contended": 503,
    "search_busy": 503,
    "ledger_unsettled": 503,
    "series_unavailable": 503,
    "agent_service_unavailable": 503,
    "unavailable": 503,
    "invariant_broken": 500,
}

#: Said with every 429 and 503 that names no other time.
RETRY_AFTER_S = 1

_CHALLENGE: Header = (b"www-authenticate", b'Bearer realm="roost"')
_CLOSE: Header = (b"connection", b"close")


class Malformed(InvalidRequest):
    """The request could not be read at all: broken JSON, a wrong query or header."""


class MethodNotAllowed(InvalidRequest):
    """The path exists, but not with this method."""

    code = "method_not_allowed"

    def __init__(self, method: str, allow: str) -> None:
        super().__init__(f"{method} is not possible here, only {allow}", method=method, allow=allow)
        self.allow = allow


def status_of(error: RoostError) -> int:
    """Return the HTTP status of an error; an unknown code is our own mistake."""
    return 400 if isinstance(error, Malformed) else STATUS.get(error.code, 500)


def answer(error: RoostError) -> Answer:
    """Return an error as a response in the one JSON shape."""
    status = status_of(error)
    headers = [JSON]
    if status == 401:
        headers.append(_CHALLENGE)
    elif status == 413:
        headers.append(_CLOSE)  # the rest of the body is not worth reading
    elif status in (429, 503):
        wait = error.details.get("retry_after_s", RETRY_AFTER_S)
        headers.append((b"retry-after", str(wait).encode()))
    elif isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allow.encode()))
    return Answer(status, encoder.encode(error.as_json()), headers)


class Failures:
    """Turns exceptions into HTTP responses."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id

    async def catch(self, work: Coroutine[Any, Any, Some]) -> Some | Answer:
        """Run a handler; return its response or that of its failure."""
        try:
            return await work
        except RoostError as error:
            return self.answer(error)
        except Exception as error:  # noqa: BLE001 - a bug in one request must not end the others
            return self.answer(error)

    def answer(self, error: Exception) -> Answer:
        """Return the response to a failure; bugs are logged here and nowhere else."""
        if isinstance(error, RoostError) and status_of(error) != 500:
            return answer(error)
        failure = self._new_id()
        logger.error("failure %s while serving a request", failure, exc_info=error)
        if isinstance(error, InvariantBroken):
            message, details = error.message, dict(error.details)
        else:
            message, details = "an internal error; this is a bug in roost", {}
        details["failure"] = failure
        return answer(
            InvariantBroken(
                message, hint=f"Maybe the server's log says more at {failure}.", **details
            )
        )

    def routing(self, error: HTTPException, method: str, path: str) -> Answer:
        """Return the response to a request that the router refuses."""
        if error.status_code == 405:
            allow = sorted((error.headers or {}).get("allow", "").split(", "))
            return answer(MethodNotAllowed(method, ", ".join(allow)))
        if error.status_code == 404:
            return answer(NotFound(f"there is nothing at {path}", path=path))
        if error.status_code < 500:
            return answer(Malformed(error.detail))
        return self.answer(error)
