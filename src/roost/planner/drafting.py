"""Draft a plan: a goal proposes, guards may veto, and what is left is ordered in waves.

Two worlds of one snapshot: in the first the goal's moves are made one after the other; in the
second they are made as agents would, several at once, with both hosts charged while a VM is on its
way. A wave is what may be under way together, within the limits of hosts, fleet and budgets; it is
safe whatever becomes of its moves, because none counts on room that another one leaves.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roost.base.errors import InvalidRequest
from roost.model.flow import Move, PlaceRequest, Plan
from roost.placement.whatif import WhatIf
from roost.planner.board import Board, Candidate, only_on
from roost.planner.cost import MoveCost, move_cost
from roost.planner.goals import (
    balance,
    consolidate,
    defragment,
    drain,
    headroom,
    move,
    repair,
)
from roost.planner.goals.base import Proposals
from roost.planner.guards import Guard, Proposal, Veto, veto

#: Every goal by name, and what it does in a sentence.
GOALS: Mapping[str, str] = {
    "balance": "Even the loads of hosts.",
    "consolidate": "Empty whole hosts.",
    "drain": "Move everything off the named hosts.",
    "repair": "Move VMs that are where a rule does not want them.",
    "defragment": "Make a place for one large VM.",
    "headroom": "Take load off hosts that will run short.",
    "move": "Move the named VMs, to the named host if one is.",
}
#: Goals whose moves somebody ordered: cost and cool-down do not stop them.
URGENT = frozenset({"drain", "repair", "defragment", "move"})
#: Vetoes that a draft names; the rest is counted.
_MOST_VETOES = 100
#: Names of a claim that stands for the incoming half of a move.
_INCOMING = "|incoming"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a plan is for: a goal, and what it needs to know."""

    goal: str
    hosts: tuple[str, ...] = ()
    vms: tuple[str, ...] = ()  # ids
    to: str | None = None
    request: PlaceRequest | None = None
    urgent: bool | None = None  # None: as the goal is


@dataclass(frozen=True, slots=True)
class Drafted:
    """One move of a draft, with its cost and why it is made."""

    who: Candidate
    source: int  # fleet rows
    target: int
    why: str
    cost: MoveCost
    wave: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """The fleet in numbers: how uneven, how full, how many hosts are in use."""

    spread: float  # standard deviation of the loads of open hosts
    mean: float
    fullest: float
    in_use: int
    loads: tuple[float, ...]  # by fleet row


@dataclass(frozen=True, slots=True)
class Draft:
    """What would be done, what stands in its way, and the fleet before and after."""

    goal: str
    moves: tuple[Drafted, ...]
    blockers: tuple[Veto, ...]
    vetoes: tuple[Veto, ...]
    more_vetoes: int
    before: Picture
    after: Picture
    eta_s: float = 0.0
    waves: int = 0

    @property
    def sent_bytes(self) -> int:
        """Return the bytes that all moves send."""
        return sum(each.cost.sent_bytes for each in self.moves)

    @property
    def stand_still_s(self) -> float:
        """Return for how long VMs stand still, all together."""
        return sum(each.cost.stand_still_s for each in self.moves)

    def plan(self, numbers: Mapping[int, int]) -> Plan:
        """Return the moves as a plan of waves, with hosts by the ledger's numbers."""
        found: list[list[Move]] = [[] for _ in range(self.waves)]
        for each in self.moves:
            source, target = numbers[each.source], numbers[each.target]
            found[each.wave - 1].append(Move(each.who.vm, source, target))
        return Plan(tuple(tuple(wave) for wave in found))


@dataclass
class _Tally:
    """What guards refused: the first of them by name."""

    vetoes: list[Veto] = field(default_factory=list)
    more: int = 0

    def add(self, found: Veto) -> None:
        if len(self.vetoes) < _MOST_VETOES:
            self.vetoes.append(found)
        else:
            self.more += 1


def proposals_of(board: Board, wish: Wish) -> Proposals:
    """Return the proposals of a goal."""
    match wish.goal:
        case "balance":
            return balance.propose(board)
        case "consolidate":
            return consolidate.propose(board)
        case "drain":
            return drain.propose(board, wish.hosts)
        case "repair":
            return repair.propose(board)
        case "headroom":
            return headroom.propose(board)
        case "move":
            return move.propose(board, wish.vms, wish.to)
        case "defragment" if wish.request is not None:
            return defragment.propose(board, wish.request)
    raise InvalidRequest(
        f"there is no goal {wish.goal!r} that can be planned so",
        hint=f"Maybe one of {', '.join(GOALS)}.",
        goal=wish.goal,
    )


def draft(board: Board, wish: Wish) -> Draft:
    """Plan towards a goal on a board; the board's fleet is as after the plan then."""
    urgent = wish.goal in URGENT if wish.urgent is None else wish.urgent
    board.urgent = urgent
    second = WhatIf.like(board.world)  # of before
    before = picture(board)
    tally, made = _Tally(), list[Drafted]()
    proposals = proposals_of(board, wish)
    blockers: tuple[Veto, ...] = ()
    try:
        proposal = next(proposals)
        while True:
            board.check_wanted()
            drafted = _judge(board, proposal, tally, urgent=urgent)
            if drafted is not None:
                made.append(drafted)
            proposal = proposals.send(drafted is not None)
    except StopIteration as ended:
        blockers = ended.value or ()
    waved, left = in_waves(second, board, made)
    blockers += left
    after = picture(board)
    waved = _with_shared_paths(board, waved)
    waves = max((each.wave for each in waved), default=0)
    return Draft(
        wish.goal, tuple(waved), blockers, tuple(tally.vetoes), tally.more, before, after,
        _eta_s(waved), waves,
    )  # fmt: skip


def with_rates(board: Board, found: Draft, rates: Mapping[str, float]) -> Draft:
    """Return a draft with the costs that dirty rates of its VMs make, in bytes per second."""
    moves = [
        replace(
            each,
            who=replace(
                each.who, load=replace(each.who.load, dirty_bytes_per_s=rates[each.who.vm])
            ),
        )
        if each.who.vm in rates
        else each
        for each in found.moves
    ]
    moves = _with_shared_paths(board, moves)
    return replace(found, moves=tuple(moves), eta_s=_eta_s(moves))


def _eta_s(moves: Sequence[Drafted]) -> float:
    """Return how long all waves take, one after the other."""
    longest: dict[int, float] = {}
    for each in moves:
        longest[each.wave] = max(longest.get(each.wave, 0.0), each.cost.total_s)
    return sum(longest.values())


def _judge(board: Board, proposal: Proposal, tally: _Tally, *, urgent: bool) -> Drafted | None:
    """Make a proposed move on the board unless a guard or the engine says no."""
    who, source = proposal.who, board.row_of(proposal.who)
    speed = board.bandwidth(source, proposal.row)
    cost = move_cost(who.load, speed, factor=board.factor)
    found = veto(board, proposal, cost, urgent=urgent)
    if found is not None:
        tally.add(found)
        return None
    if who.vm in board.moved or not board.move(who, proposal.row):
        return None
    return Drafted(who, source, proposal.row, proposal.why, cost)


# Waves


def in_waves(
    world: WhatIf, board: Board, moves: list[Drafted]
) -> tuple[list[Drafted], tuple[Veto, ...]]:
    """Order moves in waves on the world of before; return those that no order makes possible."""
    left, found, wave = list(moves), list[Drafted](), 0
    while left:
        board.check_wanted()
        wave += 1
        taken, left = _one_wave(world, board, left, wave)
        if not taken:
            why = "hosts wait for each other's room, and no spare room breaks the circle"
            return found, tuple(Veto(e.who.vm, e.who.name, Guard.LIMIT, why) for e in left)
        found += taken
    return found, ()


def _one_wave(
    world: WhatIf, board: Board, moves: list[Drafted], wave: int
) -> tuple[list[Drafted], list[Drafted]]:
    limits, fleet = board.limits, world.fleet
    busy: Counter[int] = Counter()
    away: Counter[str] = Counter()
    taken: list[tuple[Drafted, PlaceRequest]] = []
    left: list[Drafted] = []
    for each in moves:
        groups = each.who.budgets
        if (
            len(taken) >= limits.at_once
            or max(busy[each.source], busy[each.target]) >= limits.per_host
            or any(away[group] >= board.budgets.get(group, 1) for group in groups)
            or not _arrives(world, each)
        ):
            left.append(each)
            continue
        taken.append((each, each.who.request))
        busy.update((each.source, each.target))
        away.update(groups)
    for each, request in taken:  # all have arrived: their first halves are gone
        number = fleet.vms.numbers[request.key + _INCOMING]
        vms = fleet.vms
        amounts = vms.demand[number].copy()
        terms, group_set = int(vms.terms[number]), int(vms.group_set[number])
        devices, cells = int(vms.devices[number]), int(vms.cells[number])
        expected = vms.expected[number].copy()
        fleet.remove(number)
        fleet.remove(vms.numbers[request.key])
        fleet.apply(request.key, each.target, amounts, terms, group_set, devices, cells, expected)
    return [replace(each, wave=wave) for each, _ in taken], left


def _arrives(world: WhatIf, each: Drafted) -> bool:
    """Charge the target with a VM that still is at its source, if the engine lets it."""
    fleet, request = world.fleet, each.who.request
    asked = only_on(request, fleet.hosts.names[each.target])
    number = fleet.vms.numbers.get(request.key)
    if asked is None or number is None:
        return False
    mark, version = fleet.mark(), fleet.version
    fleet.remove(number)
    found = world.find(asked)
    fleet.undo(mark)
    fleet.version = version
    if found is None:
        return False
    world.commit(replace(request, key=request.key + _INCOMING), found)
    return True


def _with_shared_paths(board: Board, moves: list[Drafted]) -> list[Drafted]:
    """Return moves with what they cost when those of a wave share the paths of their hosts."""
    busy: Counter[tuple[int, int]] = Counter()
    for each in moves:
        busy.update(((each.wave, each.source), (each.wave, each.target)))
    found = []
    for each in moves:
        sharing = max(busy[each.wave, each.source], busy[each.wave, each.target])
        speed = board.bandwidth(each.source, each.target) / sharing
        cost = move_cost(each.who.load, speed, factor=board.factor)
        found.append(replace(each, cost=cost))
    return found


def picture(board: Board) -> Picture:
    """Return the loads of a board in numbers."""
    loads, count = board.loads(), board.world.fleet.hosts.arrays.vm_count
    rows = board.world.fleet.present_rows()
    opened = loads[board.open_rows()]
    if not len(opened):
        opened = np.zeros(1)
    return Picture(
        spread=float(np.std(opened)),
        mean=float(np.mean(opened)),
        fullest=float(loads[rows].max()) if len(rows) else 0.0,
        in_use=int(np.count_nonzero(count[rows])),
        loads=tuple(round(float(each), 4) for each in loads),
    )
