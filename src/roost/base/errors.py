"""The exceptions of roost, named for what the caller does next.

    RoostError
    +-- InvalidRequest    change the request, then send it again   (exit 2, HTTP 4xx)
    |   +-- InvalidStrategy      the strategy's name is unknown
    |   +-- FleetFileError       a fleet file has a mistake at a line and column
    |   +-- RuleError            a rule has a mistake at a line and column
    |   +-- TooLarge             the body is larger than accepted (HTTP 413)
    |   +-- HeadTooLarge         headers are larger or more than accepted (HTTP 431)
    |   +-- PathTooLong          the path and query are longer than accepted (HTTP 414)
    |   +-- TooSlow              the request did not come in time (HTTP 408)
    |   +-- Unauthorized         no valid token came with it      (HTTP 401)
    |   +-- Forbidden            the token's role does not allow it (HTTP 403)
    |   +-- QuotaExceeded        the project's quota does not allow it (HTTP 403)
    |   +-- EventsGone           the events asked for are kept no longer (HTTP 410)
    |   +-- EventsRewritten      the event read last is not this ledger's (HTTP 409)
    +-- NotFound          it does not exist                        (exit 3, HTTP 404)
    +-- Conflict          re-read, then retry                      (exit 4, HTTP 409)
    +-- Unavailable       wait, then retry                         (exit 5, HTTP 503)
    |   +-- TooManyRequests      more than a client may ask, or connect (HTTP 429)
    |   +-- FleetUnavailable     the fleet is not loaded, or was lost
    |   +-- PlacementContended   others took the room each time; nothing was kept
    |   +-- SearchBusy           too many others wait, or take too long; nothing was kept
    |   +-- LedgerUnsettled      an old database may have been restored; hosts are asked
    |   +-- SeriesUnavailable    the store of series cannot be used; all else goes on
    +-- NoFit             no host fits; carries the Rejection's own code (exit 6, HTTP 409 or 503)
    +-- InvariantBroken   our bug: stop and report it              (exit 70, HTTP 500)

Inside roost "no host fits" is an answer (`roost.model.flow.Rejection`), not an exception; `NoFit`
is how that answer leaves a create that was told to fail.
Every class has a stable snake_case `code`; an instance adds a message that names the values, the
values themselves as `details`, and at most one hint line that begins with "Maybe".
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar


class RoostError(Exception):
    """Something went wrong that the caller can act on."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: Mapping[str, object] = details

    def as_json(self) -> dict[str, object]:
        """Return the one JSON shape of errors."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "details": dict(self.details),
                "hint": self.hint,
            }
        }


class InvalidRequest(RoostError):
    """The request itself is wrong; sending it again unchanged cannot help."""

    code = "invalid_request"
    exit_code = 2


class InvalidStrategy(InvalidRequest):
    """The strategy's name is unknown."""

    code = "invalid_strategy"

    def __init__(self, name: str, valid: Sequence[str]) -> None:
        listed = ", ".join(valid)
        super().__init__(
            f"unknown strategy {name!r}; valid strategies are {listed}",
            strategy=name,
            valid=list(valid),
        )


class FleetFileError(InvalidRequest):
    """A fleet file has a mistake; the message begins with file, line and column."""

    code = "invalid_fleet_file"

    def __init__(
        self, message: str, *, file: str, line: int, column: int, hint: str | None = None
    ) -> None:
        super().__init__(
            f"{file}:{line}:{column}: {message}", hint=hint, file=file, line=line, column=column
        )


class RuleError(InvalidRequest):
    """A rule has a mistake; `picture` is its line of text with carets below the place.

    `at` is the place in the JSON form, for a mistake that has none in a text.
    """

    code = "invalid_rule"

    def __init__(
        self,
        message: str,
        *,
        line: int,
        column: int,
        picture: str,
        hint: str | None = None,
        at: str = "",
    ) -> None:
        place = at or f"line {line}, column {column}"
        super().__init__(
            f"{place}: {message}", hint=hint, line=line, column=column, picture=picture, at=at
        )
        self.line, self.column, self.picture = line, column, picture


class TooLarge(InvalidRequest):
    """The body is larger than accepted."""

    code = "request_too_large"


class HeadTooLarge(InvalidRequest):
    """The headers are larger, or more of them, than accepted."""

    code = "request_head_too_large"


class PathTooLong(InvalidRequest):
    """The path and query are longer than accepted."""

    code = "path_too_long"


class TooSlow(InvalidRequest):
    """The request did not arrive in time."""

    code = "request_timed_out"


class Unauthorized(InvalidRequest):
    """No valid token came with the request."""

    code = "unauthorized"


class Forbidden(InvalidRequest):
    """The token's role does not allow this."""

    code = "forbidden"


class QuotaExceeded(InvalidRequest):
    """The project's quota does not allow this."""

    code = "quota_exceeded"


class EventsGone(InvalidRequest):
    """The events asked for are kept no longer; `details` say behind which one to go on."""

    code = "events_gone"

    def __init__(self, since: int, base: int) -> None:
        super().__init__(
            f"events up to {base} are kept no longer, and those after {since} were asked for",
            hint=f"Maybe read everything anew, and go on with since={base}.",
            since=since,
            kept_after=base,
        )


class EventsRewritten(InvalidRequest):
    """The event that was read last is not this ledger's: an older copy was restored since."""

    code = "events_rewritten"

    def __init__(self, since: int) -> None:
        super().__init__(
            f"event {since} is not the one that was read: an older ledger was restored since",
            hint="Maybe go back to an event before the restore, or read everything anew.",
            since=since,
        )


class NotFound(RoostError):
    """The named thing does not exist."""

    code = "not_found"
    exit_code = 3


class Conflict(RoostError):
    """The state has moved on, or the name is taken."""

    code = "conflict"
    exit_code = 4


class Unavailable(RoostError):
    """Not now; later may work."""

    code = "unavailable"
    exit_code = 5


class TooManyRequests(Unavailable):
    """One client asks, connects or reads along more than it may."""

    code = "too_many_requests"


class FleetUnavailable(Unavailable):
    """The fleet is not loaded, or was lost."""

    code = "agent_service_unavailable"


class AgentUnavailable(FleetUnavailable):
    """The agent of one host cannot be asked."""


class PlacementContended(Unavailable):
    """Other writers took the room each time it was tried; nothing was kept."""

    code = "placement_contended"


class SearchBusy(Unavailable):
    """Others of its kind are searched for or answered; this one had no turn. Nothing was kept."""

    code = "search_busy"


class LedgerUnsettled(Unavailable):
    """The ledger may be older than what hosts have done; they are being asked."""

    code = "ledger_unsettled"


class SeriesUnavailable(Unavailable):
    """The store of series cannot be used; nothing but series depends on it."""

    code = "series_unavailable"


class NoFit(RoostError):
    """No host fits; the code is the Rejection's own."""

    code = "no_fit"  # of the class; every instance has its own
    exit_code = 6

    def __init__(self, code: str, message: str, rejection: Mapping[str, object]) -> None:
        super().__init__(message, rejection=rejection)
        self.code = code  # type: ignore[misc]


class InvariantBroken(RoostError):
    """A bug in roost: an invariant does not hold any more."""

    code = "invariant_broken"
    exit_code = 70
