"""Guards: who may veto a proposed move, and why.

Goals propose; each guard says no with a `Veto`, or nothing. A move that an operator ordered (a
drain, a named move) or that mends a broken rule is `urgent`: only what makes it impossible, or a
do-not-disturb, stops it. Rules of placement are not here: the engine is asked, always.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from roost.base.units import format_bytes
from roost.model.outlook import NEVER_S
from roost.planner.board import Board, Candidate
from roost.planner.cost import MoveCost


class Guard(StrEnum):
    """The guards, in the order in which they are asked."""

    AT_REST = "at_rest"
    DO_NOT_DISTURB = "do_not_disturb"
    BUDGET = "budget"
    COOL_DOWN = "cool_down"
    LIFE = "life"
    CONVERGENCE = "convergence"
    COST = "cost"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Veto:
    """Why a VM does not move."""

    vm: str
    name: str
    guard: Guard
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A move that a goal wants; `relief` is by how much the load of its place falls, 0 to 1."""

    who: Candidate
    row: int
    relief: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Moves that are wanted together or not at all: VMs that change places, or empty a host."""

    moves: tuple[Proposal, ...]
    in_turn: bool = False  # one after the other; else each into room that the others leave


_Check = Callable[[Board, Proposal, MoveCost], str]
_Guarded = tuple[Guard, _Check, bool]  # whether it stops urgent moves as well


def veto(board: Board, proposal: Proposal, cost: MoveCost, *, urgent: bool) -> Veto | None:
    """Return the first veto of a proposed move, or None."""
    return _first(_GUARDS, board, proposal, cost, urgent=urgent)


def _first(
    guards: Sequence[_Guarded], board: Board, proposal: Proposal, cost: MoveCost, *, urgent: bool
) -> Veto | None:
    for guard, check, of_urgent in guards:
        if urgent and not of_urgent:
            continue
        if why := check(board, proposal, cost):
            return Veto(proposal.who.vm, proposal.who.name, guard, why)
    return None


def veto_of_cost(board: Board, proposal: Proposal, cost: MoveCost, *, urgent: bool) -> Veto | None:
    """Return the first veto of a move by guards that go by what it costs, or None."""
    guards = [each for each in _GUARDS if each[0] in _OF_COST]
    return _first(guards, board, proposal, cost, urgent=urgent)


def held_back(board: Board, who: Candidate, *, urgent: bool) -> Veto | None:
    """Return why a VM moves nowhere at all, before anybody looks for a place for it."""
    for guard, why in (
        (Guard.AT_REST, who.stays),
        (Guard.DO_NOT_DISTURB, who.quiet),
        (Guard.BUDGET, _budget(board, who)),
        (Guard.COOL_DOWN, "" if urgent else who.resting),
    ):
        if why:
            return Veto(who.vm, who.name, guard, why)
    return None


def _budget(board: Board, who: Candidate) -> str:
    for group in who.budgets:
        if board.budgets.get(group, 1) <= 0:
            return f"the disruption budget of its group {group!r} lets no member be away"
    return ""


def _said_end(proposal: Proposal) -> int | None:
    """Return when a VM ends, if its owner said so: a guess keeps nobody where it is."""
    expected = proposal.who.request.expected
    if expected.ends_s is None or expected.ends_s >= NEVER_S or expected.ends_learnt:
        return None
    return expected.ends_s


def _life(board: Board, proposal: Proposal, cost: MoveCost) -> str:
    ends = _said_end(proposal)
    if ends is None:
        return ""
    left = ends - board.now_s
    if left <= cost.total_s:
        return f"it ends in {max(0, left)} s, and the move takes {cost.total_s:.0f} s"
    return ""


def _cost(board: Board, proposal: Proposal, cost: MoveCost) -> str:
    ends = _said_end(proposal)
    left = board.limits.horizon_s
    if ends is not None:
        left = min(left, float(max(0, ends - board.now_s)))
    benefit = proposal.relief * left
    if benefit < cost.lost_s:
        return (
            f"it would gain {benefit:.1f} s of work in the {left:.0f} s that count, "
            f"and the move costs {cost.lost_s:.1f} s"
        )
    return ""


def over_limit(board: Board, proposals: Sequence[Proposal]) -> Veto | None:
    """Return the veto of moves that belong together and are more than the plan has left."""
    most = board.limits.most
    if len(board.moved) + len(proposals) <= most:
        return None
    why = f"a plan has at most {most} moves"
    if len(proposals) > 1:
        why += f", and {len(proposals)} belong together"
    who = proposals[0].who
    return Veto(who.vm, who.name, Guard.LIMIT, why)


def _convergence(board: Board, proposal: Proposal, cost: MoveCost) -> str:
    if cost.then != "refuse":
        return ""
    load = proposal.who.load
    guess = "" if load.dirty_bytes_per_s is not None else " (a guess: it was not measured)"
    return (
        f"it writes {format_bytes(round(load.writes))} a second{guess}, more than the path to "
        f"{board.name(proposal.row)} takes: such moves do not converge, and the plan refuses them"
    )


_GUARDS: tuple[_Guarded, ...] = (
    (Guard.AT_REST, lambda _, proposal, __: proposal.who.stays, True),
    (Guard.DO_NOT_DISTURB, lambda _, proposal, __: proposal.who.quiet, True),
    (Guard.BUDGET, lambda board, proposal, _: _budget(board, proposal.who), True),
    (Guard.COOL_DOWN, lambda _, proposal, __: proposal.who.resting, False),
    (Guard.LIFE, _life, False),
    (Guard.CONVERGENCE, _convergence, True),
    (Guard.COST, _cost, False),
)
#: Those that go by what a move costs: they are asked again when its VM's memory was read.
_OF_COST = frozenset({Guard.LIFE, Guard.CONVERGENCE, Guard.COST})


#: How long a VM rests after a move; each further one in a day doubles it, up to the last.
COOL_DOWN_S, MOST_COOL_DOWN_S, COUNTED_S = 600, 86_400, 86_400


def resting(moves_s: list[int], now_s: int) -> str:
    """Return why a VM that was moved at these times rests now; empty when it does not."""
    recent = [at for at in moves_s if at > now_s - COUNTED_S]
    if not recent:
        return ""
    rest = min(MOST_COOL_DOWN_S, COOL_DOWN_S * 2 ** (len(recent) - 1))
    left = max(recent) + rest - now_s
    if left <= 0:
        return ""
    times = "once" if len(recent) == 1 else f"{len(recent)} times"
    return f"it was moved {times} in a day and rests for {left} s more"
