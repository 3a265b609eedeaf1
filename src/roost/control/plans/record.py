"""What is kept of a plan as JSON in its row: what was asked, what was found, what moves cost."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from roost.base.timestamps import timestamp
from roost.ledger.schema.rows import PlanMoveRow, PlanRow
from roost.ledger.writes.transaction import row_json
from roost.planner.cost import MoveCost, NotConverging
from roost.planner.drafting import Draft, Picture
from roost.planner.guards import Veto
from roost.wire.plans import (
    BlockerBody,
    HostLoadBody,
    MoveCostBody,
    PictureBody,
    PlannedTogetherBody,
    PlanWindowBody,
)

#: Where a plan stands; it is over in the last three.
PLANNED, WAITING, RUNNING, PAUSED = "planned", "waiting", "running", "paused"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
OVER = (DONE, FAILED, CANCELLED)
#: Where a move of a plan stands, beside those words.
DROPPED = "dropped"
SETTLED = (DONE, FAILED, DROPPED)

#: Blockers, and hosts, of one plan that are kept by name.
_MOST_BLOCKERS, _MOST_HOSTS = 1000, 500
#: Groups that move together, and names of each.
_MOST_TOGETHER, _MOST_MEMBERS = 100, 50


class Size(Struct, omit_defaults=True):
    """The amounts of a VM for which room is made."""

    cpu_milli: int
    memory_bytes: int
    disk_bytes: int = 0


class KeptWindow(Struct, omit_defaults=True, frozen=True):
    """A time in which a plan may run; `begin_until` lets moves begin up to its very end."""

    start_ms: int
    end_ms: int
    quality: float
    reason: str
    begin_until: bool = False


class Asked(Struct, omit_defaults=True):
    """What a plan is for, in the words of the ledger: VMs by id."""

    goal: str
    hosts: list[str] = []
    vms: list[str] = []
    to: str | None = None
    size: Size | None = None
    per_host: int = 2
    at_once: int = 8
    most: int = 500
    windows: list[KeptWindow] = []
    spare: int = 0
    per_link: int = 4
    not_converging: NotConverging = "auto_converge"
    urgent: bool | None = None  # None: as the goal is; False: cost and cool-down always count


class Blocker(Struct, omit_defaults=True):
    """A VM that cannot move, and why."""

    vm: str
    name: str
    guard: str
    why: str


class Numbers(Struct, omit_defaults=True, frozen=True):
    """The fleet in numbers."""

    spread: float = 0.0
    mean: float = 0.0
    fullest: float = 0.0
    in_use: int = 0
    watts: float | None = None


class KeptTogether(Struct, omit_defaults=True):
    """VMs of one group that move together or one after the other, and what that costs in all."""

    group: str
    vms: list[str]
    waves: list[int]
    total_s: float
    sent_bytes: int
    stand_still_s: float


class Found(Struct, omit_defaults=True):
    """What the planner found: numbers of before and after, and what stands in the way."""

    before: Numbers = Numbers()
    after: Numbers = Numbers()
    eta_s: float = 0.0
    waves: int = 0
    sent_bytes: int = 0
    stand_still_s: float = 0.0
    blocked: list[Blocker] = []
    vetoed: list[Blocker] = []
    more_vetoes: int = 0
    hosts: list[tuple[str, float, float]] = []
    together: list[KeptTogether] = []
    actual: Numbers | None = None


_asked = msgspec.json.Decoder(Asked).decode
_found = msgspec.json.Decoder(Found).decode
_cost = msgspec.json.Decoder(MoveCostBody).decode


def asked_of(row: PlanRow) -> Asked:
    """Return what a plan was asked for."""
    return _asked(row.asked)


def found_of(row: PlanRow) -> Found:
    """Return what the planner found."""
    return _found(row.found)


def predicted_of(row: PlanMoveRow) -> MoveCostBody:
    """Return what a move was to cost."""
    return _cost(row.predicted)


def actual_of(row: PlanMoveRow) -> MoveCostBody | None:
    """Return what a move did cost; None while that is not known."""
    return _cost(row.actual) if row.actual else None


def found_in(draft: Draft, names: Sequence[str]) -> Found:
    """Return what a draft found, as it is kept; `names` are the hosts by fleet row."""
    touched = sorted({row for each in draft.moves for row in (each.source, each.target)})
    before, after = draft.before.loads, draft.after.loads
    rows = touched[:_MOST_HOSTS]
    if len(before) <= _MOST_HOSTS:
        rows = list(range(len(before)))
    return Found(
        before=numbers_of(draft.before),
        after=numbers_of(draft.after),
        eta_s=round(draft.eta_s, 1),
        waves=draft.waves,
        sent_bytes=draft.sent_bytes,
        stand_still_s=round(draft.stand_still_s, 3),
        blocked=[_blocker(each) for each in draft.blockers[:_MOST_BLOCKERS]],
        vetoed=[_blocker(each) for each in draft.vetoes],
        more_vetoes=draft.more_vetoes,
        hosts=[(names[row], before[row], after[row]) for row in rows],
        together=[
            KeptTogether(
                each.group,
                list(each.vms[:_MOST_MEMBERS]),
                list(each.waves[:_MOST_MEMBERS]),
                round(each.total_s, 1),
                each.sent_bytes,
                round(each.stand_still_s, 3),
            )
            for each in draft.together()[:_MOST_TOGETHER]
        ],
    )


def numbers_of(picture: Picture) -> Numbers:
    """Return the numbers of a picture as they are kept."""
    return Numbers(
        round(picture.spread, 4),
        round(picture.mean, 4),
        round(picture.fullest, 4),
        picture.in_use,
        None if picture.watts is None else round(picture.watts, 1),
    )


def cost_text(cost: MoveCost) -> str:
    """Write what a move is to cost as it is kept."""
    return row_json(
        MoveCostBody(
            total_s=round(cost.total_s, 2),
            stand_still_s=round(cost.stand_still_s, 3),
            sent_bytes=cost.sent_bytes,
            rounds=cost.rounds,
            convergence=cost.convergence,
            then=cost.then,
            factor=None if cost.factor == 1.0 else round(cost.factor, 4),
        )
    )


def _blocker(found: Veto) -> Blocker:
    return Blocker(found.vm, found.name, found.guard.value, found.why)


# As users see them


def picture_body(found: Numbers) -> PictureBody:
    """Return the numbers of a fleet as a body."""
    return PictureBody(
        spread=found.spread,
        mean=found.mean,
        fullest=found.fullest,
        in_use=found.in_use,
        watts=found.watts,
    )


def blocker_body(found: Blocker) -> BlockerBody:
    """Return a blocker as a body."""
    return BlockerBody(vm=found.vm, name=found.name, guard=found.guard, why=found.why)


def window_body(found: KeptWindow) -> PlanWindowBody:
    """Return a window as a body."""
    return PlanWindowBody(
        start=timestamp(found.start_ms),
        end=timestamp(found.end_ms),
        quality=found.quality,
        reason=found.reason,
    )


def together_body(found: KeptTogether) -> PlannedTogetherBody:
    """Return what a group's moves cost as a body."""
    return PlannedTogetherBody(
        group=found.group,
        vms=found.vms,
        waves=found.waves,
        total_s=found.total_s,
        sent_bytes=found.sent_bytes,
        stand_still_s=found.stand_still_s,
    )


def load_body(found: tuple[str, float, float]) -> HostLoadBody:
    """Return a host's load before and after as a body."""
    host, before, after = found
    return HostLoadBody(host=host, before=before, after=after)
