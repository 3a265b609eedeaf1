"""Bodies that say what was decided: placements, refusals with their fixes, explanations."""

from typing import TypeAlias

from msgspec import UNSET, UnsetType

from roost.wire.bodies.words import Reply


class ScoreTermBody(Reply):
    """One addend of a score."""

    name: str
    value: int


class RunnerUpBody(Reply):
    """A host that would have been next."""

    host: str
    score: int


class PredictedBody(Reply, omit_defaults=True):
    """What is predicted of a host with all of its VMs, its range, and the newest sample's time."""

    cpu_milli: int
    memory_bytes: int
    cpu_milli_range: tuple[int, int] | None = None
    memory_bytes_range: tuple[int, int] | None = None
    as_of_s: int | None = None


class ForeseenBody(Reply, omit_defaults=True):
    """The predictions that a placement went by: their digest, what they mean, and what they said.

    `quantile_milli`: 900 is the load that is passed one time in ten, until `until_s`. `host` is the
    chosen host without this VM, or with all VMs that were placed together.
    """

    digest: str
    quantile_milli: int | None = None
    until_s: int | None = None
    host: PredictedBody | None = None


class PlacementBody(Reply, tag="placement", tag_field="answer"):
    """Where a VM goes, and why; hard rules in `relaxed` were soft for it, after it had waited.

    `foreseen` is there where predictions were used, `mix` where the typical requests were: it
    names them.
    """

    vm: str
    host: str
    host_number: int
    strategy: str
    score: int
    devices: list[int] = []
    cells: list[int] = []
    breakdown: list[ScoreTermBody] = []
    runners_up: list[RunnerUpBody] = []
    confidence: float | None = None
    cursor: int = -1
    relaxed: list[str] = []
    foreseen: ForeseenBody | UnsetType = UNSET
    mix: str | UnsetType = UNSET


class ReasonBody(Reply, omit_defaults=True):
    """How many hosts a reason refused: as the first failing filter, and at all.

    Of rules, `rule` is the name and `part` the text of the condition that did not hold.
    """

    reason: str
    first: int
    total: int
    rule: str = ""
    part: str = ""


class ShortageBody(Reply, omit_defaults=True):
    """How much of one resource is missing; the fields of its unit are set, the others left out."""

    resource: str
    need_milli: int | UnsetType = UNSET
    free_milli: int | UnsetType = UNSET
    short_milli: int | UnsetType = UNSET
    need_bytes: int | UnsetType = UNSET
    free_bytes: int | UnsetType = UNSET
    short_bytes: int | UnsetType = UNSET
    need_count: int | UnsetType = UNSET
    free_count: int | UnsetType = UNSET
    short_count: int | UnsetType = UNSET

    @property
    def need(self) -> int:
        """Return the amount that is needed, in whatever unit it is given."""
        return self.need_milli or self.need_bytes or self.need_count or 0

    @property
    def free(self) -> int:
        """Return the amount that is free, in whatever unit it is given."""
        return self.free_milli or self.free_bytes or self.free_count or 0

    @property
    def short(self) -> int:
        """Return the amount that is missing, in whatever unit it is given."""
        return self.short_milli or self.short_bytes or self.short_count or 0


class NearestMissBody(Reply):
    """The host that lacks the least, and on how many hosts the same is missing."""

    host: str
    hosts: int
    shortages: list[ShortageBody] = []


class FixBody(Reply):
    """One change after which the VM fits, and where it would then go."""

    kind: str
    host: str
    rule: str = ""
    shortages: list[ShortageBody] = []


class VictimBody(Reply):
    """A VM that makes room, and how: moved elsewhere, or stopped to wait for another host.

    `state` says how far that is: planned, moving, stopped, gone.
    """

    vm: str
    name: str
    project: str
    priority: int
    how: str
    state: str = "planned"
    memory_bytes: int = 0
    disk_bytes: int = 0
    target: str = ""


class PreemptionBody(Reply):
    """Room that is being made for a VM on a host, or would be."""

    vm: str
    name: str
    project: str
    priority: int
    host: str
    phase: str
    victims: list[VictimBody]
    begun_at: str = ""


class IdleBody(Reply):
    """A VM that keeps room on a host and does not run there, with the command that frees it.

    Without a name: so many VMs together, which the asker may not see or which are too many to name.
    """

    host: str
    count: int
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    vm: str = ""
    project: str = ""
    state: str = ""
    remedy: str = ""


class MoveAwayBody(Reply):
    """A VM that would move to another host, so that there is room on its own."""

    vm: str
    name: str
    project: str
    source: str
    target: str


class AfterMovesBody(Reply):
    """Moves of others after which a VM would fit on a host, and the commands that make them."""

    host: str
    moves: list[MoveAwayBody]
    commands: list[str] = []


class RejectionBody(Reply, tag="rejection", tag_field="answer"):
    """Why a VM fits nowhere: counts, nearest miss and fixes, the smallest first."""

    vm: str
    code: str
    message: str
    strategy: str
    hosts: int
    reasons: list[ReasonBody] = []
    nearest_miss: NearestMissBody | None = None
    fixes: list[FixBody] = []
    larger_than_any_host: list[ShortageBody] = []
    preemption: PreemptionBody | None = None  # of a dry run: who would make room
    idle: list[IdleBody] = []  # who keeps room on the hosts that are named, and does not run
    after_moves: AfterMovesBody | None = None  # where it was asked for, and few moves would do


class RestrictionBody(Reply):
    """Something that keeps a batch from fitting: `kind` rule, group or constraint of its own VMs.

    `vms` are some of the VMs of the batch that it binds, `count` how many there are.
    """

    kind: str
    name: str
    vms: list[str]
    count: int


class BatchConflictBody(Reply):
    """The rules, groups and constraints without which a batch would fit, none of which can stay.

    Empty: amounts alone do not fit. `checked`: each was put back, and the batch was proven not to
    fit then; not so if time was up before that. `smallest`: no smaller set would do.
    """

    restrictions: list[RestrictionBody]
    checked: bool
    smallest: bool


class TogetherBody(Reply):
    """How all VMs of an atomic batch were placed, or why they were not.

    `how`: greedy, or exact search. `proven`: of a refusal, that there is no way at all; otherwise
    the search was cut short.
    """

    how: str
    proven: bool = True
    conflict: BatchConflictBody | None = None


class RuleRefusalBody(Reply):
    """A part of a rule that does not hold on a host: its text, what it read there, its error."""

    rule: str
    part: str
    values: dict[str, str]
    error: str


class VerdictBody(Reply, omit_defaults=True):
    """What the filters say of one host; where rules refuse it, which parts of them.

    Where something is predicted of the host, that; where all of its VMs' ends are expected, when
    the last will be gone, in seconds since the epoch.
    """

    host: str
    fits: bool
    score: int | None
    reasons: list[str]
    shortages: list[ShortageBody]
    rules: list[RuleRefusalBody] = []
    predicted: PredictedBody | None = None
    ends_s: int | None = None


AnswerBody: TypeAlias = PlacementBody | RejectionBody


class ExplanationBody(Reply):
    """Every host's verdict on a VM, and the answer that follows from them."""

    answer: AnswerBody
    hosts: int
    fitting: int
    reasons: list[ReasonBody]
    verdicts: list[VerdictBody]


class CapacityBody(Reply):
    """How many more copies fit, and what stops the next one.

    With a loss in `blocking`, `stranded` is the refusal of the VM that would find no host then.
    """

    answer: str
    count: int
    survive: str | None
    losses: int
    sampled: bool
    blocking: str
    refused: RejectionBody | None
    stranded: RejectionBody | None = None
