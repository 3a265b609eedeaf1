"""Spare room (N+k): whether a fleet could do without some hosts and lose k more.

Rehearsed on a copy by the engine: everything on the lost hosts must find other hosts together.
"""

from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np

from roost.model.flow import PlaceRequest
from roost.model.hosts import Scope
from roost.model.resources import Demand
from roost.placement.surviving import Rehearsal
from roost.planner.board import Board

_NOTHING = PlaceRequest("nothing", Demand(1, 1))
#: Losses that are rehearsed; where there are more, nothing is promised.
MOST_LOSSES = 20_000


def losses_of(board: Board, rows: Sequence[int], more: int) -> list[tuple[int, ...]] | None:
    """Return the losses of these hosts and any so many more, by domain; None if too many."""
    arrays, count = board.world.fleet.hosts.arrays, board.world.fleet.hosts.count
    domain = arrays.domain[:count, Scope.HOST]
    away = tuple(int(domain[row]) for row in rows)
    busy = np.flatnonzero((arrays.vm_count[:count] > 0) & (domain >= 0)).tolist()
    others = [int(domain[row]) for row in busy if row not in rows]
    lost = list(islice(combinations(others, min(more, len(others))), MOST_LOSSES + 1))
    if len(lost) > MOST_LOSSES:
        return None
    return [(*away, *each) for each in lost if away or each]


def rehearsal_on(board: Board) -> Rehearsal:
    """Return a rehearsal of losses on a board as it is."""
    return Rehearsal(
        board.world, _NOTHING, np.zeros(0, np.int64), lambda _f, _c: np.zeros(0, np.int64)
    )


def can_do_without(board: Board, rows: Sequence[int], more: int) -> bool:
    """Say whether the VMs of these hosts, and of any so many more, would find others together."""
    losses = losses_of(board, rows, more)
    if losses is None:
        return False
    return not losses or rehearsal_on(board).survives(losses, Scope.HOST)
