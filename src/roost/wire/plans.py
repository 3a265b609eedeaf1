"""The bodies of plans over HTTP: what a plan is for, its moves in waves, what became of them."""

from typing import Annotated, Literal

from msgspec import Meta, field

from roost.wire.bodies import DemandBody, Moment, Name, ProjectName, Reply, Request, Text
from roost.wire.queries import After, Limit, Query

#: Hosts and VMs that one plan names.
MOST_NAMED = 1000
#: Moves of one plan.
MOST_MOVES = 5000

Goal = Literal[
    "balance",
    "consolidate",
    "drain",
    "repair",
    "defragment",
    "headroom",
    "talkers",
    "spare",
    "move",
]
MoveState = Literal["planned", "running", "done", "failed", "dropped"]
#: Numbers of moves stay below; a plan that is planned anew counts on.
MOST_NUMBER = 1_000_000
PlanState = Literal["planned", "waiting", "running", "paused", "done", "failed", "cancelled"]


#: What is done about a VM that writes its memory faster than it can be sent.
NotConverging = Literal["auto_converge", "post_copy", "refuse"]
#: Windows that a user gives one plan.
MOST_WINDOWS = 20


class GivenWindow(Request):
    """A time in which a plan may run."""

    start: Moment
    end: Moment


class CreatePlan(Request):
    """What a plan is for.

    `hosts` are those that a drain empties. `vms` are those that are moved, `to` a host if one is
    given. `demand` is that of the VM for which room is made. With `dry_run` nothing is kept; with
    `apply` it begins at once, or at `start`. No move begins after `end`. At most `at_once` VMs move
    at a time, `per_host` from or to one host, and `per_link` over one link of a described network.

    `not_converging` says what is done about VMs that write their memory faster than it can be sent:
    they are slowed down (`auto_converge`), go on at the target before all of their memory is there
    (`post_copy`), or are not moved (`refuse`).

    A consolidation with `spare` empties a host only if any so many of the others could then be lost
    and all be restarted without the emptied ones (N+k). The goal `spare` moves VMs until any
    `spare` hosts, 1 unless more are asked for, may be lost and all that ran there be restarted.

    In `windows` alone moves are begun, and only those that are predicted to end there. They may be
    left to roost: `window` is `trough`, when the plan's hosts are foreseen to be the least busy in
    the next day, or `maintenance`, the times of day that they name in `roost.maintenance-times`.
    """

    goal: Goal
    hosts: Annotated[list[Name], Meta(max_length=MOST_NAMED)] = field(default_factory=list)
    vms: Annotated[list[Text], Meta(max_length=MOST_NAMED)] = field(default_factory=list)
    project: ProjectName | None = None
    to: Name | None = None
    demand: DemandBody | None = None
    dry_run: bool = False
    apply: bool = False
    start: Moment | None = None
    end: Moment | None = None
    window: Literal["trough", "maintenance"] | None = None
    windows: Annotated[list[GivenWindow], Meta(max_length=MOST_WINDOWS)] = field(
        default_factory=list
    )
    spare: Annotated[int, Meta(ge=0, le=2)] = 0
    per_host: Annotated[int, Meta(ge=1, le=64)] = 2
    at_once: Annotated[int, Meta(ge=1, le=1000)] = 8
    per_link: Annotated[int, Meta(ge=1, le=64)] = 4
    not_converging: NotConverging = "auto_converge"
    most: Annotated[int, Meta(ge=1, le=MOST_MOVES)] = 500


class MoveCostBody(Reply):
    """What a move is predicted to cost, or did cost.

    `then` is what is foreseen of the sending of its memory: it `converges`, or `auto_converge`,
    `post_copy` or `refuse`, as the plan says of VMs that write too fast. Of a move that was made,
    `convergence` and `then` are empty. `factor` is what was learnt from earlier moves and is in the
    predicted seconds.
    """

    total_s: float
    stand_still_s: float | None = None
    sent_bytes: int | None = None
    rounds: int | None = None
    convergence: float | None = None
    then: str = ""
    factor: float | None = None


class PlanMoveBody(Reply):
    """One move of a plan.

    state: `planned`, `running`, `done`, `failed` (the VM stayed), `dropped` (no longer needed).
    """

    number: int
    wave: int
    vm: str
    name: str
    source: str
    target: str
    state: str
    why: str
    predicted: MoveCostBody
    actual: MoveCostBody | None
    begun_at: str | None
    ended_at: str | None


class BlockerBody(Reply):
    """A VM that a plan would move and cannot, or a guard that vetoed a move, and why."""

    vm: str
    name: str
    guard: str
    why: str


class PictureBody(Reply):
    """The fleet in numbers; loads are shares of capacity, 0 to 1.

    `watts` are what hosts in use draw, of those that say so by `roost.watts`.
    """

    spread: float
    mean: float
    fullest: float
    in_use: int
    watts: float | None = None


class HostLoadBody(Reply):
    """The load of a host before and after a plan."""

    host: str
    before: float
    after: float


class PlanWindowBody(Reply):
    """A time in which a plan may run: how good it is, from 0 (busiest) to 1 (calmest), and why."""

    start: str
    end: str
    quality: float
    reason: str


class PlannedTogetherBody(Reply):
    """VMs of an affinity group that move in the same waves or in waves that follow each other."""

    group: str
    vms: list[str]
    waves: list[int]
    total_s: float
    sent_bytes: int
    stand_still_s: float


class PlanBody(Reply, kw_only=True):
    """A plan as it is now. `eta_s` is what is predicted of all waves, one after the other."""

    id: str
    goal: str
    state: PlanState
    why: str
    generation: int
    moves: int
    done: int
    failed: int
    moving: int
    waves: int
    wave: int
    replans: int
    eta_s: float
    sent_bytes: int
    stand_still_s: float
    blockers: int
    before: PictureBody
    after: PictureBody
    start: str | None
    end: str | None
    windows: list[PlanWindowBody]
    not_converging: str = "auto_converge"  # an older server says nothing, and does this
    created_at: str
    created_by: str
    begun_at: str | None
    ended_at: str | None


class PlanDetail(PlanBody):
    """A plan with its moves, what stands in its way, and what the loads of hosts become.

    `listed` are some of its moves in their order; `next` continues them when there are more.
    `held` of its moves have all their room held on their targets. `actual` is the fleet when it
    ended; `accuracy` is actual over predicted seconds of its moves.
    """

    listed: list[PlanMoveBody]
    next: int | None
    blocked: list[BlockerBody]
    vetoed: list[BlockerBody]
    more_vetoes: int
    hosts: list[HostLoadBody]
    together: list[PlannedTogetherBody]
    held: int = 0
    actual: PictureBody | None = None
    accuracy: float | None = None


class FleetRecommendation(Reply):
    """What is wrong with the fleet now, and what one plan would do about it."""

    goal: str
    what: str
    moves: int
    waves: int
    eta_s: float
    sent_bytes: int
    before: PictureBody
    after: PictureBody
    blocked: list[BlockerBody]
    command: str


class FleetRecommendations(Reply):
    """What plans would do about the fleet as it is now, the most urgent first."""

    recommendations: list[FleetRecommendation]


class PlanMaintenance(Request):
    """Which hosts are to be emptied in turn: all that are open if none is named.

    At most `at_once` are away together. With `spare` the loss of one more host could be restarted
    elsewhere at every moment (N+1).
    """

    hosts: Annotated[list[Name], Meta(max_length=MOST_NAMED)] = field(default_factory=list)
    at_once: Annotated[int, Meta(ge=1, le=MOST_NAMED)] = 10
    spare: bool = True


class MaintenanceGroup(Reply):
    """Hosts that are away together, and what must move for that."""

    hosts: list[str]
    moves: int
    sent_bytes: int
    eta_s: float


class MaintenanceBlocked(Reply):
    """A host that cannot be emptied, and the VMs that hold it, or what else does."""

    host: str
    blocked: list[BlockerBody]


class MaintenanceBody(Reply):
    """Hosts in groups, one group after the other, and those that are left out."""

    groups: list[MaintenanceGroup]
    left: list[MaintenanceBlocked]


class ContinuousBody(Reply):
    """Continuous mode: how the server was told to plan by itself, and what the last look said.

    mode: `off`, `recommend` (plans are kept as drafts) or `apply`. A plan has at most `most` moves;
    a VM moves at most `vm_day` times in a day, all together `day` times. One process looks for all:
    `looks_here` says whether it is the one that answers, whose `said` and `looked_at` these are.
    """

    mode: str
    goals: list[str]
    every_s: float
    most: int
    vm_day: int
    day: int
    looks_here: bool
    looked_at: str | None
    said: str
    plans: "list[PlanBody]"


class PlanPage(Reply):
    """Some plans, the newest first; `next` continues the list when there are more."""

    plans: list[PlanBody]
    next: str | None = None


class ShowPlan(Query):
    """Which moves of a plan to list: in their order, after a number, of one state or of all."""

    move_state: MoveState | None = None
    limit: Limit = 1000
    after: Annotated[
        int, Meta(ge=0, le=MOST_NUMBER, description="The `next` of the page before.")
    ] = 0


class ListPlans(Query):
    """Which plans to list."""

    state: PlanState | None = None
    created_by: Name | None = None
    limit: Limit = 100
    after: After | None = None
