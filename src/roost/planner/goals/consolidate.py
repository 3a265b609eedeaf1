"""Consolidate: empty whole hosts, the emptiest first. One that cannot be emptied is not begun."""

import numpy as np

from roost.planner.board import Board, Candidate
from roost.planner.goals.base import Proposals
from roost.planner.guards import Proposal, held_back

#: No host is filled beyond this share by it: somewhere must be room for what comes.
MOST_LOAD = 0.85
#: Hosts that are tried after one that could not be emptied.
_MOST_TRIED = 200


def propose(board: Board) -> Proposals:
    """Propose the moves of every host that can be emptied whole."""
    there = board.by_row()
    rows = [row for row in there if board.open_rows()[row]]
    loads = board.loads()
    rows.sort(key=lambda row: (loads[row], row))
    emptied: set[int] = set()
    tried = 0
    for source in rows:
        # One that has taken VMs by now is not emptied again.
        if any(board.row_of(who) == source for who in _moved(board)):
            continue
        seats = _seats(board, there[source], source, emptied)
        if seats is None:
            tried += 1
            if tried == _MOST_TRIED:
                break
            continue
        made = True
        for who, row in seats:
            text = f"empties {board.name(source)}"
            made = (yield Proposal(who, row, 1.0, text)) and made
        if made:
            emptied.add(source)
    return ()


def _moved(board: Board) -> list[Candidate]:
    return [board.candidates[vm] for vm in board.moved]


def _seats(
    board: Board, here: list[Candidate], source: int, emptied: set[int]
) -> list[tuple[Candidate, int]] | None:
    """Return a place for every VM of a host on hosts that are in use; None if one has none."""
    if any(who.vm in board.moved or held_back(board, who, urgent=False) for who in here):
        return None
    found: list[tuple[Candidate, int]] = []
    capacity = board.capacity()
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
            row = int(np.argmax(np.where(wanted, after, -1.0)))  # the fullest that takes it
            if not board.move(who, row):
                return None
            found.append((who, row))
    return found
