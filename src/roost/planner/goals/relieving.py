"""Take load off hosts: the best single moves away from the fullest, one after the other.

The measure is the sum over hosts of squared loads of cpu and memory: moving from full to empty
lowers it, so it can only fall, and ends. A move must close a gap of `MIN_GAP` between the two
hosts, so that a fleet which is even enough is left alone and no VM goes back and forth. Where no
single move is left for a host, two VMs may change places: the difference of the two then moves.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from roost.planner.board import Board, Candidate, Floats
from roost.planner.goals.base import Proposals
from roost.planner.guards import Exchange, Proposal, held_back

#: The least by which the source is fuller than the target will be, as a share of capacity.
MIN_GAP = 0.05
#: VMs of one host that are asked about before the next host has its turn.
_MOST_ASKED = 24
#: Hosts that an exchange is looked for with, the emptiest first, and exchanges that are tried.
_MOST_OTHERS, _MOST_TRIED = 16, 8


def relieve(board: Board, above: float, *, under: float = 1.0, why: str = "") -> Proposals:
    """Move VMs off hosts whose load is above a mark, to where it stays under another one."""
    capacity, settled = board.capacity(), np.zeros(len(board.capacity()), bool)
    there, any_made = board.by_row(), False
    while True:
        loads = board.loads()
        order = np.argsort(-loads, kind="stable")
        source = next((int(r) for r in order if loads[r] > above and not settled[r]), None)
        if source is None:
            if not any_made:
                return ()
            settled[:], any_made = False, False  # others have made room: ask everybody again
            continue
        made = False
        for proposal in _best(board, there.get(source, []), source, capacity, under, why):
            if (yield proposal):
                there[source].remove(proposal.who)
                made = any_made = True
                break
        for exchange in () if made else _exchanges(board, there, source, capacity, under):
            if (yield exchange):
                for each in exchange.moves:
                    row = source if each.who is exchange.moves[0].who else exchange.moves[0].row
                    there[row].remove(each.who)
                made = any_made = True
                break
        if not made:
            settled[source] = True


def _best(
    board: Board,
    here: list[Candidate],
    source: int,
    capacity: Floats,
    under: float,
    why: str,
) -> list[Proposal]:
    """Return the moves off one host, the one that evens loads the most first."""
    uses = board.uses()
    squares = ((uses / capacity) ** 2).sum(axis=1)
    found: list[tuple[float, str, Proposal]] = []
    for who in _able(board, here, capacity[source]):
        use = board.use_of(who)
        after = (uses + use) / capacity
        left = ((uses[source] - use) / capacity[source]).max()
        gap = float((uses[source] / capacity[source]).max()) - after.max(axis=1)
        gain = squares[source] + squares
        gain = gain - (((uses[source] - use) / capacity[source]) ** 2).sum()
        gain = gain - (after**2).sum(axis=1)
        wanted = (gap >= MIN_GAP) & (gain > 0) & (after.max(axis=1) <= under)
        if not wanted.any():
            continue
        wanted &= board.fitting(who)
        if not wanted.any():
            continue
        row = int(np.argmax(np.where(wanted, gain, -np.inf)))
        relief = float(gap[row])
        text = why or (
            f"{board.name(source)} is at {100 * loads_at(uses, capacity, source):.0f}%, "
            f"then {100 * left:.0f}%"
        )
        found.append((-float(gain[row]), who.vm, Proposal(who, row, relief, text)))
    found.sort(key=lambda each: each[:2])
    return [each[2] for each in found]


def _exchanges(
    board: Board, there: Mapping[int, list[Candidate]], source: int, capacity: Floats, under: float
) -> list[Exchange]:
    """Return exchanges of a VM of a full host for a smaller one, the best first."""
    uses = board.uses()
    loads = (uses / capacity).max(axis=1)
    others = np.flatnonzero(board.open_rows() & (loads < loads[source] - MIN_GAP))
    others = others[np.argsort(loads[others], kind="stable")][:_MOST_OTHERS]
    mine = _able(board, there.get(source, []), capacity[source])
    found: list[tuple[float, str, str, Exchange]] = []
    for row in others.tolist():
        before = ((uses[[source, row]] / capacity[[source, row]]) ** 2).sum()
        for theirs in _able(board, there.get(row, []), capacity[row]):
            back = board.use_of(theirs)
            for who in mine:
                more = board.use_of(who) - back
                left = (uses[source] - more) / capacity[source]
                right = (uses[row] + more) / capacity[row]
                # Two VMs are disturbed for it: the fuller host must gain a whole gap by itself.
                gap = float(loads[source] - max(left.max(), right.max()))
                gain = float(before - (left**2).sum() - (right**2).sum())
                if gap < MIN_GAP or gain <= 0 or right.max() > under:
                    continue
                text = f"changes places between {board.name(source)} and {board.name(row)}"
                moves = (
                    Proposal(who, row, gap / 2, text),
                    Proposal(theirs, source, gap / 2, text),
                )
                found.append((-gain, who.vm, theirs.vm, Exchange(moves)))
    found.sort(key=lambda each: each[:3])
    return [each[3] for each in found[:_MOST_TRIED]]


def _able(board: Board, here: Sequence[Candidate], capacity: Floats) -> list[Candidate]:
    """Return the VMs of a host that may move, the largest first, as many as are asked about."""
    able = [
        who
        for who in here
        if who.vm not in board.moved and held_back(board, who, urgent=False) is None
    ]
    able.sort(key=lambda who: (-float((board.use_of(who) / capacity).max()), who.vm))
    return able[:_MOST_ASKED]


def loads_at(uses: Floats, capacity: Floats, row: int) -> float:
    """Return the load of one host."""
    return float((uses[row] / capacity[row]).max())
