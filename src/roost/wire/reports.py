"""Reports on a fleet in the HTTP API: what a week of readings says of all VMs and hosts.

A report of a large fleet takes minutes: until it is there an answer says how far it is, and whoever
asks again is told more. What is not known is null, never 0.
"""

from typing import Annotated

from msgspec import Meta

from roost.wire.bodies import Reply
from roost.wire.queries import Query

MOST_LISTED = 1000


class ReportQuery(Query):
    """How long the lists of a report may be."""

    top: Annotated[int, Meta(ge=1, le=MOST_LISTED, description="Entries of a list at most.")] = 20


class ReportedVM(Reply):
    """A VM in a report."""

    vm: str
    name: str
    project: str
    host: str


class OversizedVM(ReportedVM):
    """A VM that asks for more than it uses, or for less; cpu in millicores, memory in bytes.

    `saving` is what would be given back, below 0 what is missing; `risk` the share of the past
    week in which the VM would have wanted more than is advised.
    """

    resource: str
    asked: int
    advised: int
    saving: int
    risk: float


class ZombieVM(ReportedVM):
    """A VM that nobody seems to need, with what it would give back and the evidence."""

    cpu_milli: int
    memory_bytes: int
    days_seen: float
    cpu_p99_share: float
    network_p99_bytes: float


class PeakGroupBody(Reply):
    """VMs that peak together: how alike pairs of them are, and in which hour of the day (UTC)."""

    vms: list[ReportedVM]
    count: int
    correlation: float
    peak_hour: int
    hosts: int


class ShortHostBody(Reply):
    """A host that may be short: since when on it may be, and is likely to be (null: it is not).

    `most` is the upper bound of what it will use within the week ahead, of `total`.
    """

    host: str
    resource: str
    first_ms: int
    likely_ms: int | None
    most: int
    total: int


class LevelBody(Reply):
    """How many times a host's cpu may be promised, beside how many times it is.

    At `safe` it is short in no more than `bound` of all steps of five minutes.
    """

    host: str
    promised: float
    safe: float
    used: float
    bound: float


class HourBody(Reply):
    """One hour of the week: the share of all hosts' cpu and memory that was used, 0 to 1."""

    at_ms: int
    cpu: float | None
    memory: float | None


class SavingBody(Reply):
    """What all advice together would give back, and of how many VMs."""

    vms: int
    cpu_milli: int
    memory_bytes: int


class FleetReport(Reply):
    """What the week before `origin_ms` says of a fleet; lists are cut, counts are whole."""

    origin_ms: int
    hosts: int
    vms: int
    classes: dict[str, int]
    hours: list[HourBody]
    saving: SavingBody
    oversized: list[OversizedVM]
    undersized: list[OversizedVM]
    zombies: list[ZombieVM]
    groups: list[PeakGroupBody]
    shortages: list[ShortHostBody]
    levels: list[LevelBody]
    oversized_count: int
    undersized_count: int
    zombie_count: int
    group_count: int
    unread_hosts: int


class FleetReportBody(Reply):
    """A report, or how far it is: `done` of `total` hosts have been read."""

    done: int
    total: int
    report: FleetReport | None
