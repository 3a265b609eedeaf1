"""The bodies of reservations over HTTP.

A reservation keeps capacity for a project, a user or a purpose: `units` of a demand, each on one
host, from a moment on, until one, or at recurring times. A moment without an offset from UTC is by
the clock of `timezone`.
"""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from roost.wire.bodies import DemandBody, Moment, Name, Reply, Request, Text
from roost.wire.queries import After, Limit, Query

#: Reservations that may be there at once.
MOST_RESERVATIONS = 2000
#: Units of one, each of which is a row and has a host.
MOST_UNITS = 1000
#: Hosts that a line of a calendar names.
MOST_PLACES = 64

Units = Annotated[int, Meta(ge=1, le=MOST_UNITS)]
Names = Annotated[list[Name], Meta(max_length=64)]
Description = Annotated[str, Meta(max_length=1000)]
Recurrence = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=500,
        description="An RRULE of RFC 5545, such as `FREQ=WEEKLY;BYDAY=MO`.",
    ),
]
Zone = Annotated[str, Meta(min_length=1, max_length=64, description="An IANA time zone.")]
Seconds = Annotated[int, Meta(ge=60, le=366 * 86400)]
Expression = Annotated[str, Meta(min_length=1, max_length=16_384)]


class CreateReservation(Request, kw_only=True):
    """Capacity to keep. Exactly one of `project`, `user` and `purpose` says for whom.

    Without `start` it begins now, without `end` it has none. One that recurs says how long each
    occurrence `lasts_s`. `hosts`, `zones` and `rule`, a condition in the rule language, say where.
    """

    name: Name
    demand: DemandBody | None = None  # None: that of the flavor
    flavor: Name | None = None  # in place of the demand
    units: Units = 1
    project: Name | None = None
    user: Text | None = None
    purpose: Text | None = None
    description: Description = ""
    hosts: Names = field(default_factory=list)
    zones: Names = field(default_factory=list)
    rule: Expression | None = None
    start: Moment | None = None
    end: Moment | None = None
    recurrence: Recurrence | None = None
    lasts_s: Seconds | None = None
    timezone: Zone = "UTC"


class ChangeReservation(Request):
    """What is to be different; what is left out stays. `end` null: it has none.

    A change that cannot be honoured is refused, and the reservation stays what it was. With
    `version` it is refused when somebody else has changed it since.
    """

    description: Description | UnsetType = UNSET
    units: Units | UnsetType = UNSET
    end: Moment | UnsetType | None = UNSET
    version: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET


class UnitBody(Reply):
    """One unit: the host that keeps it, or none while there is none.

    `devices` and `cells` are those of the host that it keeps, by position.
    """

    unit: str
    host: str | None
    devices: list[int] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)


class KeptDevices(Reply):
    """The devices that one unit keeps: so many, and what each of them is at least."""

    count: int
    share_milli: int
    models: list[str]
    memory_bytes: int


class WindowBody(Reply):
    """A time in which a reservation is live; `end` none: for ever, or not known yet."""

    start: str
    end: str | None


class ReservationBody(Reply, kw_only=True):
    """A reservation as it is now.

    state: `live`, `waiting` (between its windows, or before them), `ended`, or `unhonoured` while
    some unit has no host, with the reason. Amounts are those of one unit; `drawn` are the VMs that
    take their room from it.
    """

    name: str
    state: str
    unhonoured: str
    description: str
    owner_kind: str
    owner: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    units: int
    hosts: list[str]
    zones: list[str]
    rule: str | None
    start: str
    end: str | None
    recurrence: str | None
    lasts_s: int | None
    timezone: str
    version: int
    created_at: str
    created_by: str
    changed_at: str
    changed_by: str
    drawn: int
    gpu: KeptDevices | None = None
    extended: dict[str, int] = field(default_factory=dict)
    numa: str = "any"


class ReservationDetail(ReservationBody, kw_only=True):
    """A reservation with its units and the windows that are known."""

    placed: list[UnitBody]
    windows: list[WindowBody]


class ReservationPage(Reply):
    """Some reservations; `next` continues the list when there are more."""

    reservations: list[ReservationBody]
    next: str | None = None


class CalendarLine(Reply):
    """One window of one reservation, with what it keeps in all.

    `hosts` are the first by name of those that keep it, `more_hosts` the others.
    """

    start: str
    end: str | None
    reservation: str
    owner_kind: str
    owner: str
    units: int
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    hosts: list[str]
    more_hosts: int = 0
    gpus: int = 0
    extended: dict[str, int] = field(default_factory=dict)


class CalendarBody(Reply):
    """Windows in the order of their starts; with `more` some are left, which `next` goes on with.

    A window that has begun has its own start, which may be before the one that was asked for.
    """

    lines: list[CalendarLine]
    more: bool = False
    next: str | None = None


class ListReservations(Query):
    """Which reservations to list."""

    owner: Annotated[str, Meta(max_length=255)] | None = None
    host: Name | None = None
    limit: Limit = 100
    after: After | None = None


class AskCalendar(Query):
    """Which windows to list: those that are not over at `start` and begin before `end`."""

    start: Moment | None = None
    end: Moment | None = None
    host: Name | None = None
    limit: Limit = 1000
    after: After | None = None
