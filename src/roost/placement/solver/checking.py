"""A solution held against the engine's own filters: an order in which every VM passes them."""

from collections.abc import Sequence

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, MEMORY
from roost.model.flow import Placement, PlaceRequest
from roost.placement.engine import Engine
from roost.placement.registry import FILTERS


def order_that_fits(
    engine: Engine, requests: Sequence[PlaceRequest], placements: Sequence[Placement]
) -> list[int] | None:
    """Return an order in which every VM passes all filters where it is put; nothing changes.

    None if none was found: each goes as soon as it passes, in the order given. A spread looks at
    the members that are there, so a VM that comes too early may pass later on.
    """
    fleet = engine.fleet
    version, cursor, mark = fleet.version, engine.cursor, fleet.mark()
    order: list[int] = []
    left = list(range(len(requests)))
    try:
        while left:
            waiting = []
            for index in left:
                request, placement = requests[index], placements[index]
                if passes(engine, request, placement):
                    engine.commit(request, placement)
                    order.append(index)
                else:
                    waiting.append(index)
            if len(waiting) == len(left):
                return None
            left = waiting
    finally:
        fleet.undo(mark)
        fleet.version, engine.cursor = version, cursor
    return order


def passes(engine: Engine, request: PlaceRequest, placement: Placement) -> bool:
    """Say whether every filter lets a VM be on one host, with these devices and cells."""
    question, rows = engine.question(request), np.array([placement.host_row])
    for each in FILTERS:
        if each.applies(question) and not each.column(question, rows)[0]:
            return False
    return _seat_is_free(engine.fleet, request, placement)


def _seat_is_free(fleet: Fleet, request: PlaceRequest, placement: Placement) -> bool:
    arrays, row = fleet.hosts.arrays, placement.host_row
    ask = request.demand.devices
    if ask is not None and (arrays.device_free[row, list(placement.devices)] < ask.milli).any():
        return False
    vector = fleet.vector(request.demand).tolist()
    for position, cell in enumerate(placement.cells):
        for part in (CPU, MEMORY):
            share, rest = divmod(vector[part], len(placement.cells))
            if arrays.cell_free[row, cell, part] < share + (1 if position < rest else 0):
                return False
    return True
