"""Talkers: bring VMs nearer to those they talk with, the longest way first.

What counts is traffic times distance, as the engine charges it (`placement/nearness.py`), summed
over a VM's partners. Each move makes the sum over all pairs smaller, and each VM moves once, so it
ends. Two VMs that both would have to go to a third host stay where they are: neither gains alone.
"""

import heapq
from typing import NamedTuple

import numpy as np

from roost.fleet.layout import Int64Array
from roost.placement.nearness import PER_HUNDREDTH, talks_that_count
from roost.planner.board import Board, Candidate
from roost.planner.goals.base import Proposals
from roost.planner.guards import Proposal, held_back

#: Traffic times distance (kbit/s and us) that a move must save, 10 Mbit/s over 1 ms, and the share
#: of the VM's own: for less nobody is disturbed.
LEAST_SAVED, LEAST_SHARE = 10 * PER_HUNDREDTH, 0.25
#: No host is filled beyond this share by it.
MOST_LOAD = 0.85
#: VMs that are looked at, those that have the longest ways for their traffic.
_MOST_LOOKED_AT = 2000


class _Way(NamedTuple):
    """The best that one VM can do."""

    saved: int
    row: int
    before: int
    after: int


def propose(board: Board) -> Proposals:
    """Propose the move that saves the most, until none saves enough; names no blockers."""
    queue: list[tuple[int, str]] = []
    for who in _farthest(board):
        if (way := _best(board, who)) is not None:
            heapq.heappush(queue, (-way.saved, who.vm))
    by_key = {who.request.key: who for who in board.candidates.values()}
    while queue:
        board.check_wanted()
        told, vm = heapq.heappop(queue)
        who = board.candidates[vm]
        # Others have moved since: what it would save now decides whose turn it is.
        way = None if vm in board.moved else _best(board, who)
        if way is None:
            continue
        if way.saved < -told:
            heapq.heappush(queue, (-way.saved, vm))
            continue
        if (
            yield Proposal(
                who, way.row, min(1.0, way.saved / (100 * PER_HUNDREDTH)), _why(who, way)
            )
        ):
            for talk in talks_that_count(who.request.talks):
                partner = by_key.get(talk.key)
                if partner is not None and (more := _best(board, partner)) is not None:
                    heapq.heappush(queue, (-more.saved, partner.vm))
    return ()


def _farthest(board: Board) -> list[Candidate]:
    """Return the VMs that talk and may move, those with the longest ways first."""
    found = []
    for vm, who in board.candidates.items():
        row = board.row_of(who) if talks_that_count(who.request.talks) else -1
        if row >= 0 and held_back(board, who, urgent=False) is None:
            found.append((-int(_sums(board, who, np.array([row]))[0]), vm, who))
    found.sort(key=lambda each: each[:2])
    return [who for far, _, who in found[:_MOST_LOOKED_AT] if -far >= LEAST_SAVED]


def _best(board: Board, who: Candidate) -> _Way | None:
    """Return where a VM would be nearest to its partners; None where it would not gain enough."""
    if who.vm in board.moved or held_back(board, who, urgent=False) is not None:
        return None
    here, rows = board.row_of(who), np.arange(board.world.fleet.hosts.count)
    sums = _sums(board, who, rows)
    before = int(sums[here])
    least = max(LEAST_SAVED, int(LEAST_SHARE * before))
    if before - int(sums.min(initial=before)) < least:
        return None
    load = ((board.uses() + board.use_of(who)) / board.capacity()).max(axis=1)
    wanted = (before - sums >= least) & (load <= MOST_LOAD)
    wanted &= board.fitting(who)
    if not wanted.any():
        return None
    # Of equally near hosts the emptiest; of those the first.
    near = np.flatnonzero(wanted)
    row = int(near[np.lexsort((near, load[near], sums[near]))[0]])
    return _Way(before - int(sums[row]), row, before, int(sums[row]))


def _sums(board: Board, who: Candidate, rows: Int64Array) -> Int64Array:
    return board.world.question(who.request).near.sums(who.request.talks, rows)


def _why(who: Candidate, way: _Way) -> str:
    kbit = sum(each.kbit for each in talks_that_count(who.request.talks))
    before, after = (each / kbit / 1000 for each in (way.before, way.after))
    return f"its {kbit / 1000:g} Mbit/s go {before:.2f} ms far, then {after:.2f}"
