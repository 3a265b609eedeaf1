"""Consolidate: empty whole hosts, the emptiest first. One that cannot be emptied is not begun.

The moves off a host are proposed together: a guard that vetoes one of them keeps all.

Where hosts say what they draw (`planner/power.py`) those that draw the most for what they can take
are emptied first, VMs go to those that draw the least for it when full, the fullest first, and a
host is emptied only if the fleet draws less then. Where a VM adds the fewest watts is not asked:
curves are flat in places, and VMs there would keep many hosts half full.

With hosts to spare (N+k) one is emptied only if the others could lose any k of them and restart all
there, the emptied ones switched off.
"""

import numpy as np

from roost.fleet.layout import BoolArray
from roost.planner.board import Board, Candidate, Floats
from roost.planner.goals.base import Proposals
from roost.planner.guards import Exchange, Proposal, held_back
from roost.planner.power import Curve, curves, fleet_watts
from roost.planner.sparing import can_do_without

#: No host is filled beyond this share by it: somewhere must be room for what comes.
MOST_LOAD = 0.85
#: Hosts that are tried after one that could not be emptied.
_MOST_TRIED = 200


def propose(board: Board, spare: int = 0) -> Proposals:
    """Propose the moves of every host that can be emptied whole, with so many others to spare."""
    there = board.by_row()
    rows = [row for row in there if board.open_rows()[row]]
    loads, known = board.loads(), curves(board)
    rows.sort(key=lambda row: (-_idle(known, board, row), loads[row], row))
    emptied: set[int] = set()
    tried = 0
    for source in rows:
        # One that has taken VMs by now is not emptied again.
        if any(board.row_of(who) == source for who in _moved(board)):
            continue
        if spare and not can_do_without(board, (*sorted(emptied), source), spare):
            seats = None
        else:
            seats = _seats(board, there[source], source, emptied, known)
        if seats is None:
            tried += 1
            if tried == _MOST_TRIED:
                break
            continue
        text = f"empties {board.name(source)}"
        moves = tuple(Proposal(who, row, 1.0, text) for who, row in seats)
        if (yield Exchange(moves, in_turn=True)):
            emptied.add(source)
    return ()


def _moved(board: Board) -> list[Candidate]:
    return [board.candidates[vm] for vm in board.moved]


def _idle(known: dict[int, Curve], board: Board, row: int) -> float:
    """Return the idle watts of a host for each core that it can give; 0 if it does not say."""
    curve = known.get(row)
    return 0.0 if curve is None else 1000 * curve.points[0] / float(board.capacity()[row, 0])


def _seats(
    board: Board,
    here: list[Candidate],
    source: int,
    emptied: set[int],
    known: dict[int, Curve],
) -> list[tuple[Candidate, int]] | None:
    """Return a place for every VM of a host on hosts that are in use; None if one has none.

    None also where the fleet would draw no less.
    """
    if any(who.vm in board.moved or held_back(board, who, urgent=False) for who in here):
        return None
    found: list[tuple[Candidate, int]] = []
    capacity = board.capacity()
    drawn = fleet_watts(board, known)
    with board.trial():
        big = sorted(here, key=lambda who: (-float(board.use_of(who).max()), who.vm))
        for who in sorted(big, key=lambda who: -who.load.memory_bytes):
            uses, use = board.uses(), board.use_of(who)
            after = ((uses + use) / capacity).max(axis=1)
            wanted = board.fitting(who) & (after <= MOST_LOAD)
            wanted &= board.world.fleet.hosts.arrays.vm_count[: len(wanted)] > 0
            for row in emptied:
                wanted[row] = False
            wanted[source] = False
            if not wanted.any():
                return None
            row = _seat(wanted, uses, after, capacity, known)
            if not board.move(who, row):
                return None
            found.append((who, row))
        saves = drawn is None or source not in known or (fleet_watts(board, known) or 0.0) < drawn
    return found if saves else None


def _seat(
    wanted: BoolArray, uses: Floats, after: Floats, capacity: Floats, known: dict[int, Curve]
) -> int:
    """Return the fullest host, of those that draw the least when full if all say what they draw."""
    rows = np.flatnonzero(wanted).tolist()
    if not all(row in known for row in rows):
        return int(np.argmax(np.where(wanted, after, -1.0)))

    def drawn_when_full(row: int) -> float:
        return known[row].points[-1] / float(capacity[row, 0])

    return min(rows, key=lambda row: (round(drawn_when_full(row), 9), -float(after[row]), row))
