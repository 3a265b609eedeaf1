"""Draft a plan: a goal proposes, guards may veto, and what is left is ordered in waves.

Two worlds of one snapshot: in the first the goal's moves are made one after the other; in the
second they are rehearsed as agents would make them, several at once (`rehearsal`). What comes out
of the second is the fleet after the plan.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roost.base.errors import InvalidRequest
from roost.model.flow import Move, PlaceRequest, Plan
from roost.placement.whatif import WhatIf
from roost.planner.board import Board
from roost.planner.cost import MemoryRead
from roost.planner.goals import (
    balance,
    consolidate,
    defragment,
    drain,
    headroom,
    move,
    repair,
    spare,
    talkers,
)
from roost.planner.goals.base import Proposals
from roost.planner.guards import Exchange, Guard, Proposal, Veto, over_limit, veto, veto_of_cost
from roost.planner.power import curves, fleet_watts
from roost.planner.rehearsal import Drafted, in_waves

#: Every goal by name, and what it does in a sentence.
GOALS: Mapping[str, str] = {
    "balance": "Even the loads of hosts.",
    "consolidate": "Empty whole hosts.",
    "drain": "Move everything off the named hosts.",
    "repair": "Move VMs that are where a rule does not want them.",
    "defragment": "Make a place for one large VM.",
    "headroom": "Take load off hosts that will run short.",
    "talkers": "Bring VMs nearer to those they talk with.",
    "spare": "Let any hosts be lost, one or more, and everything find another (N+k).",
    "move": "Move the named VMs, to the named host if one is.",
}
#: Goals whose moves somebody ordered: cost and cool-down do not stop them.
URGENT = frozenset({"drain", "repair", "defragment", "spare", "move"})
#: Goals whose VMs are all to move: those that are too many for the plan, or would not converge,
#: stand in its way.
_WHOLE = frozenset({"drain", "move"})
_COMES_SHORT = frozenset({Guard.LIMIT, Guard.CONVERGENCE})
#: Vetoes that a draft names; the rest is counted.
_MOST_VETOES = 100


@dataclass(frozen=True, slots=True)
class Wish:
    """What a plan is for: a goal, and what it needs to know."""

    goal: str
    hosts: tuple[str, ...] = ()
    vms: tuple[str, ...] = ()  # ids
    to: str | None = None
    request: PlaceRequest | None = None
    urgent: bool | None = None  # None: as the goal is
    spare: int = 0  # hosts that may be lost after a consolidation, or after the goal of that name
    few: bool = False  # whether only a defragmentation of few moves is wanted


@dataclass(frozen=True, slots=True)
class Picture:
    """The fleet in numbers: how uneven, how full, how many hosts are in use."""

    spread: float  # standard deviation of the loads of open hosts
    mean: float
    fullest: float
    in_use: int
    loads: tuple[float, ...]  # by fleet row
    watts: float | None = None  # that hosts in use draw, of those that say so


@dataclass(frozen=True, slots=True)
class Together:
    """What the moves of VMs that belong together cost in all."""

    group: str
    vms: tuple[str, ...]  # names
    waves: tuple[int, ...]
    total_s: float
    sent_bytes: int
    stand_still_s: float


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

    def together(self) -> tuple[Together, ...]:
        """Return what groups of VMs cost that move together or one after the other."""
        groups: dict[str, list[Drafted]] = {}
        for each in self.moves:
            if each.who.together:
                groups.setdefault(each.who.together, []).append(each)
        return tuple(
            Together(
                group,
                tuple(dict.fromkeys(each.who.name for each in moves)),
                tuple(sorted({each.wave for each in moves})),
                _eta_s(moves),
                sum(each.cost.sent_bytes for each in moves),
                sum(each.cost.stand_still_s for each in moves),
            )
            for group, moves in groups.items()
            if len({each.who.vm for each in moves}) > 1
        )

    def plan(self, numbers: Mapping[int, int]) -> Plan:
        """Return the moves as a plan of waves, with hosts by the ledger's numbers."""
        found: list[list[Move]] = [[] for _ in range(self.waves)]
        for each in self.moves:
            source, target = numbers[each.source], numbers[each.target]
            found[each.wave - 1].append(Move(each.who.vm, source, target))
        return Plan(tuple(tuple(wave) for wave in found))


@dataclass
class _Tally:
    """What guards refused: the first of them by name, and all that make a plan come short."""

    whole: bool = False  # whether everything that is proposed has to move
    short: list[Veto] = field(default_factory=list)
    vetoes: list[Veto] = field(default_factory=list)
    more: int = 0

    def add(self, found: Veto) -> None:
        if self.whole and found.guard in _COMES_SHORT:
            self.short.append(found)
        elif len(self.vetoes) < _MOST_VETOES:
            self.vetoes.append(found)
        else:
            self.more += 1


def proposals_of(board: Board, wish: Wish) -> Proposals:
    """Return the proposals of a goal."""
    match wish.goal:
        case "balance":
            return balance.propose(board)
        case "consolidate":
            return consolidate.propose(board, wish.spare)
        case "drain":
            return drain.propose(board, wish.hosts)
        case "repair":
            return repair.propose(board)
        case "headroom":
            return headroom.propose(board)
        case "talkers":
            return talkers.propose(board)
        case "spare":
            return spare.propose(board, max(1, wish.spare))
        case "move":
            return move.propose(board, wish.vms, wish.to)
        case "defragment" if wish.request is not None:
            return defragment.propose(board, wish.request, few=wish.few)
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
    tally, made = _Tally(wish.goal in _WHOLE), list[Drafted]()
    proposals = proposals_of(board, wish)
    blockers: tuple[Veto, ...] = ()
    try:
        proposal = next(proposals)
        while True:
            board.check_wanted()
            drafted = _judge(board, proposal, tally, urgent=urgent)
            made += drafted
            proposal = proposals.send(bool(drafted))
    except StopIteration as ended:
        blockers = (*(ended.value or ()), *tally.short)
    waved, left = in_waves(second, board, made)
    blockers += left
    after = picture(replace(board, world=second))
    waved = _with_shared_paths(board, waved)
    return Draft(
        wish.goal, tuple(waved), blockers, tuple(tally.vetoes), tally.more, before, after,
        _eta_s(waved), _last_wave(waved),
    )  # fmt: skip


def with_readings(board: Board, found: Draft, read: Mapping[str, MemoryRead]) -> Draft:
    """Return a draft with the costs that follow from readings of its VMs' memory."""
    moves = [
        replace(each, who=replace(each.who, load=each.who.load.as_read(read[each.who.vm])))
        if each.who.vm in read
        else each
        for each in found.moves
    ]
    moves = _with_shared_paths(board, moves)
    return replace(found, moves=tuple(moves), eta_s=_eta_s(moves), waves=_last_wave(moves))


def vetoes_as_read(board: Board, found: Draft, read: Mapping[str, MemoryRead]) -> tuple[Veto, ...]:
    """Return what guards say of a draft's moves now that the memory of their VMs was read."""
    refused: dict[str, Veto] = {}
    for each in found.moves:
        if each.who.vm not in read or each.who.vm in refused:
            continue
        load = each.who.load.as_read(read[each.who.vm])
        cost = board.cost(load, each.source, each.target)
        who = replace(each.who, load=load)
        proposal = Proposal(who, each.target, each.relief, each.why)
        if (told := veto_of_cost(board, proposal, cost, urgent=board.urgent)) is not None:
            refused[each.who.vm] = told
    return tuple(refused.values())


def with_vetoes(found: Draft, vetoes: Sequence[Veto]) -> Draft:
    """Return a draft with vetoes before its own; a blocker that was vetoed says which guard."""
    refused = {each.vm: each for each in vetoes}
    blockers = tuple(refused.pop(each.vm, each) for each in found.blockers)
    told = (*refused.values(), *found.vetoes)
    more = found.more_vetoes + max(0, len(told) - _MOST_VETOES)
    return replace(found, blockers=blockers, vetoes=told[:_MOST_VETOES], more_vetoes=more)


def _eta_s(moves: Sequence[Drafted]) -> float:
    """Return how long all waves take, one after the other."""
    longest: dict[int, float] = {}
    for each in moves:
        longest[each.wave] = max(longest.get(each.wave, 0.0), each.cost.total_s)
    return sum(longest.values())


def _judge(
    board: Board, proposed: Proposal | Exchange, tally: _Tally, *, urgent: bool
) -> list[Drafted]:
    """Make proposed moves on the board, all or none, unless a guard or the engine says no."""
    proposals = proposed.moves if isinstance(proposed, Exchange) else (proposed,)
    in_turn = isinstance(proposed, Exchange) and proposed.in_turn
    found = []
    for each in proposals:
        who, source = each.who, board.row_of(each.who)
        cost = board.cost(who.load, source, each.row)
        refused = veto(board, each, cost, urgent=urgent)
        if refused is not None:
            tally.add(refused)
            return []
        if who.vm in board.moved:
            return []
        found.append(Drafted(who, source, each.row, each.why, cost, relief=each.relief))
    if (refused := over_limit(board, proposals)) is not None:
        tally.add(refused)
        return []
    make = board.move_in_turn if in_turn else board.move_all
    return found if make([(each.who, each.target) for each in found]) else []


def _last_wave(moves: Sequence[Drafted]) -> int:
    return max((each.wave for each in moves), default=0)


def _with_shared_paths(board: Board, moves: list[Drafted]) -> list[Drafted]:
    """Return moves with what they cost when those of a wave share the paths of their hosts.

    Moves that converge only with their path to themselves, where others are refused, get waves of
    their own behind their wave: nothing in it counts on room that they leave.
    """
    found = _sharing(board, moves)
    alone = {at for at, each in enumerate(found) if each.cost.then == "refuse"}
    if not alone:
        return found
    waves, parted = 0, dict[int, int]()
    for wave in sorted({each.wave for each in moves}):
        members = [at for at, each in enumerate(found) if each.wave == wave]
        together = [at for at in members if at not in alone]
        waves += bool(together)
        parted |= dict.fromkeys(together, waves)
        for at in members:
            if at in alone:
                waves += 1
                parted[at] = waves
    order = sorted(parted, key=lambda at: (parted[at], at))
    return _sharing(board, [replace(moves[at], wave=parted[at]) for at in order])


def _sharing(board: Board, moves: Sequence[Drafted]) -> list[Drafted]:

    def lanes(each: Drafted) -> list[Hashable]:
        links = board.links(each.source, each.target)
        return [each.source, each.target, *(("link", link) for link in links)]

    busy: Counter[tuple[int, Hashable]] = Counter()
    for each in moves:
        busy.update((each.wave, lane) for lane in lanes(each))
    found = []
    for each in moves:
        sharing = max(busy[each.wave, lane] for lane in lanes(each))
        cost = board.cost(each.who.load, each.source, each.target, sharing)
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
        watts=fleet_watts(board, curves(board)),
    )
