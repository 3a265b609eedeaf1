"""Take load off hosts: the best single moves away from the fullest, one after the other.

The measure is the sum over hosts of squared loads of cpu and memory: moving from full to empty
lowers it, so it can only fall, and ends. A move must close a gap of `MIN_GAP` between the two
hosts, so that a fleet which is even enough is left alone and no VM goes back and forth.
"""

import numpy as np

from roost.planner.board import Board, Candidate, Floats
from roost.planner.goals.base import Proposals
from roost.planner.guards import Proposal, held_back

#: The least by which the source is fuller than the target will be, as a share of capacity.
MIN_GAP = 0.05
#: VMs of one host that are asked about before the next host has its turn.
_MOST_ASKED = 24


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
    able = [
        who
        for who in here
        if who.vm not in board.moved and held_back(board, who, urgent=False) is None
    ]
    able.sort(key=lambda who: (-float((board.use_of(who) / capacity[source]).max()), who.vm))
    for who in able[:_MOST_ASKED]:
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


def loads_at(uses: Floats, capacity: Floats, row: int) -> float:
    """Return the load of one host."""
    return float((uses[row] / capacity[row]).max())
