"""Profiles in the HTTP API: what a VM does, what it will do, what size would do, with intervals.

Series are columns of five-minute steps; what is not known is null, never 0.
"""

from typing import Annotated

from msgspec import Meta, field

from roost.wire.bodies import Reply
from roost.wire.queries import OneVM

#: Hours that may be foreseen, and those of the past that are told.
MOST_HOURS, PAST_HOURS = 168, 48


class ProfileQuery(OneVM):
    """How far ahead, and which project a VM's name belongs to."""

    hours: Annotated[int, Meta(ge=1, le=MOST_HOURS, description="How many hours are foreseen.")] = (
        24
    )


class PatternBody(Reply):
    """A pattern of a VM's use, and how often patterns of such evidence held on, from 0 to 1.

    `cycle_s` is the length of a cycle, 0 for other patterns; `peaks_s` and `troughs_s` are when it
    was high and low in the last cycle, or when a level shifted, in seconds since the epoch.
    """

    kind: str
    confidence: float
    cycle_s: float
    peaks_s: list[int]
    troughs_s: list[int]


class ModelBody(Reply):
    """The model that says values up to `until_s` ahead, the one that erred least in the past.

    `parameters` are numbers by name, lengths in steps. `error` is how far it was off on average
    when it was tried on the past, in the unit of the series; null where it could not be.
    """

    until_s: int
    family: str
    parameters: dict[str, float]
    error: float | None


class ForecastBody(Reply):
    """Values ahead: of each step the most likely one, and where `coverage` of all will lie.

    A bound is null where the past is too short to tell one; `model` says a value one hour ahead.
    `models` has all that were used, the nearest first, and `cycles_s` the lengths of the cycles
    that models with a season go by. The model `cold_start` goes by so many `peers`, VMs like this
    one, where its own past is too short.
    """

    point: list[float | None]
    low: list[float | None]
    high: list[float | None]
    model: str
    models: list[ModelBody] = field(default_factory=list)
    cycles_s: list[float] = field(default_factory=list)


class SizingBody(Reply):
    """Advice on the size of one resource; null while less than a day was read.

    `saving` is what would be given back, below 0 what is missing; `risk` is the share of time in
    which the past would have exceeded the advised size. Of disk io and network nothing is `asked`
    (0), and no size is advised.
    """

    asked: int
    advised: int | None
    saving: int | None
    risk: float | None


class ResourceProfileBody(Reply):
    """What is known of a VM's use of one resource.

    `points` of the past week's steps were read; `gaps` are those without a value since the VM was
    first read in it, null of an older server. `parameters` are its numbers by name, `stability`
    says how alike the halves of the week are. `past` ends where `forecast` begins.
    """

    points: int
    patterns: list[PatternBody]
    parameters: dict[str, float]
    stability: float
    past: list[float | None]
    forecast: ForecastBody
    sizing: SizingBody
    gaps: int | None = None


class ZombieBody(Reply):
    """Whether nobody seems to need a VM, with the evidence."""

    zombie: bool
    days_seen: float
    cpu_p99_share: float
    network_p99_bytes: float | None
    cycle_found: bool


class MovingTogetherBody(Reply):
    """Two resources of a VM that move together: `second` follows `first` by `lag_s` seconds."""

    first: str
    second: str
    correlation: float
    lag_s: int


class BottleneckBody(Reply):
    """What stands out while a resource of a VM peaks: what waits, or another resource.

    `excess` is how far it is then above its usual, in standard deviations; `share` of the peaks are
    among its own highest twentieth.
    """

    peaking: str
    resource: str
    excess: float
    share: float


class CleaningBody(Reply):
    """What was dropped or repaired of a VM's readings in the week, of which `samples` are kept.

    Dropped were values that are no number (`not_finite`) or `negative`, and readings of moments too
    old or still to come (`jumps` of a clock). Of `duplicates`, readings of the moment of the newest
    one, the last one sent counts. Readings `out_of_order` came after newer ones and were put where
    they belong. At `resets` counters began anew: their rates are not known there.
    """

    samples: int
    not_finite: int
    negative: int
    jumps: int
    duplicates: int
    out_of_order: int
    resets: int


class LifetimeBody(Reply):
    """How long a VM of this age will still live, by how long VMs like it lived.

    One in ten such VMs is gone after `early_s` more seconds, half after `half_s`, nine in ten after
    `late_s`; null where more than that outlive all ages seen. `seen` of them got as old as it is.
    """

    age_s: int
    early_s: int | None
    half_s: int | None
    late_s: int | None
    seen: int


class PeakingVM(Reply):
    """A VM that peaks together with the one that was asked about."""

    vm: str
    name: str
    project: str


class SharedPeaksBody(Reply):
    """Whom a VM peaks together with, by the last fleet report, of the week up to `origin_ms`.

    `count` VMs do, of which some are named, on so many `hosts`, the VM itself and its own counted;
    `correlation` says how alike pairs of them are, `peak_hour` is of the day (UTC).
    """

    origin_ms: int
    vms: list[PeakingVM]
    count: int
    correlation: float
    peak_hour: int
    hosts: int


class ProfileBody(Reply):
    """What was learnt of a VM from the readings of the last week, up to `origin_ms`.

    `resources` has `cpu` (millicores), `memory` (bytes), `disk io` and `network` (bytes each
    second, both ways together). `workload_class` is null while less than a day was read.
    `together` has the strongest first. `cleaning` is null where series are of a Prometheus,
    `lifetime` while little is known of how VMs end, or where its owner said when it does, and
    `peaks_with` without a fleet report of the last day, and for members, who see no other projects.
    """

    vm: str
    name: str
    project: str
    origin_ms: int
    step_s: int
    coverage: float
    workload_class: str | None
    class_probability: float
    resources: dict[str, ResourceProfileBody]
    zombie: ZombieBody
    together: list[MovingTogetherBody]
    bottlenecks: list[BottleneckBody]
    cleaning: CleaningBody | None = None
    lifetime: LifetimeBody | None = None
    peaks_with: SharedPeaksBody | None = None
