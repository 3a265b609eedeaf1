"""Bodies of the service itself: events, health, what the doctor finds, strategies, errors."""

from typing import Any

from roost.wire.bodies.words import Reply


class EventBody(Reply):
    """One change: who did what to whom, and what is different now."""

    seq: int
    at: str
    actor: str
    kind: str
    subject: str  # vm/ID, host/NAME, project/NAME, token/ID
    project: str | None
    changes: dict[str, Any]
    note: str = ""
    tx: str = ""  # its transaction: with it a reader can tell that an older ledger was restored


class EventPage(Reply):
    """Events in order; `next` is the sequence to ask from to go on."""

    events: list[EventBody]
    next: int


class FindingBody(Reply):
    """One thing that a check found, in words."""

    check: str
    message: str


class DoctorBody(Reply):
    """What the checks of a live database found: broken invariants, troubles of the fleet, notes.

    `ok` means neither findings nor troubles; a note is worth knowing, but nothing is wrong.
    """

    ok: bool
    checked: dict[str, int]
    findings: list[FindingBody]
    troubles: list[FindingBody] = []
    notes: list[FindingBody] = []


class UpgradeBody(Reply):
    """What finishing an upgrade has done; all zeros when there was nothing left to do."""

    specs_stored: int = 0
    bodies_emptied: int = 0
    events_cleaned: int = 0
    sealed: int = 0  # VMs whose user data was not


class HealthBody(Reply):
    """Whether the process lives, or is ready and what it waits for."""

    status: str
    detail: str = ""


class StrategyBody(Reply):
    """A strategy by name."""

    name: str
    summary: str


class StrategiesBody(Reply):
    """All strategies, and which one is used when a request names none."""

    default: str
    strategies: list[StrategyBody]


class ErrorDetail(Reply):
    """What went wrong, in one shape for every error."""

    code: str
    message: str
    details: dict[str, Any] = {}
    hint: str | None = None


class ErrorBody(Reply):
    """The one shape of errors."""

    error: ErrorDetail
