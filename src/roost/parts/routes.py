"""Routes as data: what can be asked over HTTP, by whom, and which use case answers.

A part brings its lines; the HTTP layer makes router, authorisation, documentation and tests from
them and knows no use case. A line's `call` gets what was asked, decoded, and returns the body of
the answer; whatever it raises is an error of roost.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from roost.parts.asker import Asker
from roost.parts.roles import Roles

if TYPE_CHECKING:
    from roost.parts.access import Principal

#: Why a VM could get no place.
NO_PLACE = (
    "no_available_agents",
    "insufficient_resources",
    "constraints_unsatisfied",
    "placement_contended",
    "search_busy",
    "ledger_unsettled",
    "agent_service_unavailable",
)
#: Why a VM could not be changed.
CHANGING = ("conflict", "ledger_unsettled")


@dataclass(slots=True)
class Call:
    """One HTTP request to a route. `who` is None on a public one; `key` is the Idempotency-Key."""

    who: "Principal"
    path: Mapping[str, str]
    query: Any
    body: Any
    token: str
    key: str | None
    digest: bytes  # of the raw body, where there is a key
    headers: Mapping[bytes, bytes]
    asker: Asker = field(default_factory=Asker)  # one that stays, where no connection says


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that chooses its status, or was given before to the same key."""

    status: int
    body: Struct
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route of the HTTP API: its documentation and its behaviour at once.

    `noun` and `verb` name the operation. `statuses` are those of success, the first one unless the
    answer says otherwise; `errors` are codes beyond those that follow from the shape of the route
    (a token, a body, a name in the path).
    """

    method: str
    path: str
    noun: str
    verb: str
    call: Callable[[Call], Awaitable[Any]]
    roles: Roles
    summary: str
    statuses: tuple[int, ...] = (200,)
    errors: tuple[str, ...] = ()
    body: Any = None
    query: Any = None
    reply: Any = None
    media: str = "application/json"
    keyed: bool = False  # takes an Idempotency-Key
    #: What a creating route makes: how paths below name it, and the answer's field that says it.
    makes: tuple[str, str] | None = None
    weight: int = 1  # counts as so many requests, where it needs no token
    hot: bool = False  # carries the load: served with as little in between as there can be
    #: Follows what happens after a sequence, where the caller accepts server-sent events.
    stream: Callable[[Call, int], AsyncIterator[Any]] | None = None


def check_routes(routes: tuple[Route, ...]) -> None:
    """Check the route table at start: an incomplete route is an error."""
    seen: set[tuple[str, str]] = set()
    for route in routes:
        line = f"{route.method} {route.path}"
        if not route.roles:
            raise ValueError(f"the route {line} names no roles")
        if (route.method, route.path) in seen:
            raise ValueError(f"the route {line} is there twice")
        if route.reply is None and route.statuses != (204,):
            raise ValueError(f"the route {line} does not say what it gives")
        seen.add((route.method, route.path))
