"""The arrows between the parts of roost, one type each; all are here but the profile.

    PlaceRequest -> Placement | Rejection -> Claim -> Order -> Report -> Profile -> Plan(Move...)
      api            placement               ledger   agent    agent     analysis   planner

| arrow | made by | in its stored or sent form |
|---|---|---|
| PlaceRequest, Placement, Rejection | the engine and whoever asks it | decisions, as JSON |
| Claim | `control/create/placing.py` and `control/survive` | `ledger.rows.ClaimRow` |
| Order | `control/moves/machine.py` and `control/agents/dispatch.py` | `wire.agentlink.DesiredVM` |
| Report | `control/agents/intake.py`, for the move machine | `wire.agentlink.SeenVM` |
| Move | `control/vms/move_record.py`, from a VM's row | columns of the VM's row |
| Profile | `analysis`, of its own patterns: `profiles.WorkloadProfile` | learnt from series |
| Plan | `planner/drafting.py` | `ledger.rows.PlanRow` and `PlanMoveRow` |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple

from roost.base.errors import InvalidRequest
from roost.model.constraints import (
    NO_CONSTRAINTS,
    NO_TERMS,
    Constraints,
    HostRequirements,
    Talk,
)
from roost.model.groups import GroupSpec
from roost.model.outlook import NOTHING_EXPECTED, DayCourse, Expected, Foreseen
from roost.model.reasons import Reason
from roost.model.resources import Demand, NumaMode
from roost.model.states import (
    ClaimKind,
    FailureClass,
    KeptRestart,
    MoveMode,
    Part,
    Phase,
    Restart,
    Seen,
)

_ANY = NumaMode.ANY  # members of an enumeration are slow to look up


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """One VM that wants a host.

    `groups` names groups the fleet knows, or brings their rules along. `seed` feeds the `random`
    strategy; None derives it from the name, so that a replay draws the same host. `key` is what the
    fleet calls the VM once it is charged, where its name alone is not unique; empty: its name.
    `labels` and `restart` are there for rules to read; rules whose names are `lifted` do not bind
    it, those of `policy` do, and hard ones whose names are `relaxed` are soft for it. `expected` is
    what analysis expects of it, `talks` with whom it talks and how near they must be; where its
    peaks should lie apart from those of its neighbours, `day` is the course of its day.
    """

    name: str
    demand: Demand
    constraints: Constraints = NO_CONSTRAINTS
    groups: tuple[GroupSpec | str, ...] = ()
    strategy: str | None = None
    seed: int | None = None
    priority: int = 0
    project: str = ""
    key: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    restart: Restart | Literal[""] = ""
    lifted: tuple[str, ...] = ()
    policy: str = ""
    relaxed: tuple[str, ...] = ()
    expected: Expected = NOTHING_EXPECTED
    talks: tuple[Talk, ...] = ()
    day: DayCourse | None = None
    terms: HostRequirements = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidRequest("a VM needs a name")
        demand = self.demand
        terms = NO_TERMS
        asks = self.constraints is not NO_CONSTRAINTS and self.constraints != NO_CONSTRAINTS
        if asks or demand.devices or demand.numa is not _ANY or self.talks or self.day:
            terms = HostRequirements(
                demand.devices, demand.numa, self.constraints, talks=self.talks, day=self.day
            )
        object.__setattr__(self, "terms", terms)


class ScoreTerm(NamedTuple):
    """One addend of a score, in fixed point (see `roost.placement.strategies`)."""

    name: str
    value: int


class RunnerUp(NamedTuple):
    """A host that would have been next."""

    host: str
    score: int


class Placement(NamedTuple):
    """The engine's proposal: this host, these devices, these cells. Not durable yet.

    `confidence` says how clearly the host won: the lead over the best runner-up as a share of one
    whole score, from 0 (a tie, decided by host number) to 1 (no other host fits, or a lead of one
    whole score or more).
    """

    vm: str
    host: str
    host_row: int
    strategy: str
    score: int
    devices: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()
    breakdown: tuple[ScoreTerm, ...] = ()
    runners_up: tuple[RunnerUp, ...] = ()
    confidence: float | None = None  # None: runners-up were not asked for
    cursor: int = -1  # where round_robin goes on; the cursor that was passed in otherwise
    relaxed: tuple[str, ...] = ()  # hard rules that were soft for this VM
    foreseen: Foreseen | None = None  # None: it was not decided by predictions
    mix: str = ""  # digest of the typical requests that it was decided by, if it was


class RejectionCode(StrEnum):
    """The stable error codes of a request that fits nowhere."""

    NO_AVAILABLE_AGENTS = "no_available_agents"
    INSUFFICIENT_RESOURCES = "insufficient_resources"
    CONSTRAINTS_UNSATISFIED = "constraints_unsatisfied"


@dataclass(frozen=True, slots=True)
class Shortage:
    """How much of one resource is missing."""

    resource: str
    need: int
    free: int

    @property
    def short(self) -> int:
        """Return the missing amount."""
        return self.need - self.free


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """The hosts that come closest: everything fits but these amounts, on so many hosts."""

    host: str
    shortages: tuple[Shortage, ...]
    hosts: int


class FixKind(StrEnum):
    """What a single change would touch, in the order in which fixes are preferred."""

    UNCORDON = "uncordon"
    LIFT_RULE = "lift_rule"
    FREE = "free"
    BRING_ONLINE = "bring_online"


@dataclass(frozen=True, slots=True)
class Fix:
    """One change after which the request fits; the engine has tried it on a snapshot."""

    kind: FixKind
    host: str  # where the VM would then go
    rule: str = ""  # the lifted rule
    shortages: tuple[Shortage, ...] = ()  # what to free on that host


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many hosts a reason refused; of rules, which rule it was and which part of it."""

    reason: Reason
    first: int  # hosts whose first failing filter this was; these add up to all hosts
    total: int  # hosts on which it failed at all
    rule: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The answer "no host fits", with the counts, the nearest miss and the smallest fix."""

    vm: str
    code: RejectionCode
    message: str
    strategy: str
    hosts: int
    reasons: tuple[ReasonCount, ...] = ()
    nearest_miss: NearestMiss | None = None
    fixes: tuple[Fix, ...] = ()
    larger_than_any_host: tuple[Shortage, ...] = ()

    @property
    def smallest_fix(self) -> Fix | None:
        """Return the first of the fixes, which is the smallest."""
        return self.fixes[0] if self.fixes else None


Answer = Placement | Rejection


@dataclass(frozen=True, slots=True)
class Claim:
    """Capacity that a host has promised to a VM: amounts, counters, devices and cells.

    `counters` names what only some hosts have, as the ledger counts it; `devices` and `cells` are
    bit masks of positions on the host.
    """

    vm: str
    host: int
    kind: ClaimKind
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    counters: tuple[tuple[str, int], ...] = ()
    devices: int = 0
    cells: int = 0

    @property
    def id(self) -> str:
        """Return its key: a VM has one claim of each kind at most."""
        return f"{self.vm}:{self.kind}"


class Order(NamedTuple):
    """Which part a host has in a VM, the other host of a move, and whether all was sent."""

    part: Part
    peer: int | None = None
    sent: bool = False


class Report(NamedTuple):
    """What a host says of a VM, and the generation that it has acted upon."""

    generation: int
    seen: Seen
    code: str = ""
    message: str = ""
    failure: FailureClass | None = None
    endpoint: Mapping[str, str] = {}  # where an incoming copy waits

    def words(self, otherwise: str) -> str:
        """Return the host's code and message as one text, `otherwise` if it gave neither."""
        return ": ".join(part for part in (self.code, self.message) if part.strip()) or otherwise


@dataclass(frozen=True, slots=True)
class Move:
    """One VM on its way from a host to another, as far as what to do next depends on it.

    Hosts are named by the number under which they registered. A VM at rest is a move without a
    phase: one that nobody has begun, whose target may be open.
    """

    vm: str
    source: int | None
    target: int | None = None
    phase: Phase = ""
    mode: MoveMode = "live"
    restart: KeptRestart = "here"  # of the VM: which fences are proof for it
    begun: int = 0  # the generation of the VM that began the move
    generation: int = 0  # of the VM now


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in waves: those of a wave may go on together, a wave begins when the last is over."""

    waves: tuple[tuple[Move, ...], ...] = ()
