"""How many more VMs of a demand fit, and how many while a loss could still be survived.

The count is a promise: it is what the engine really places, one copy after the other, until the
first refusal. Without groups one host's copies never matter to another host, so each host is
filled by itself with the engine's own rules; with groups the engine places copy by copy.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from roost.fleet.layout import Int64Array
from roost.fleet.outlook import expected_vector
from roost.model.flow import PlaceRequest, Rejection
from roost.model.hosts import Scope
from roost.placement.batching import RequestColumns
from roost.placement.engine import Engine, seed_of
from roost.placement.surviving import Rehearsal
from roost.placement.whatif import WhatIf, copy_name

#: Copies placed at once by the engine when groups make it count them one by one.
_CHUNK = 4096
#: Nobody asks for more; a demand this small on a fleet this large is a mistake.
MOST_COPIES = 100_000_000


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """How many copies fit, and what stops the next one."""

    count: int
    strategy: str
    survive: Scope | None = None
    losses: int = 1
    sampled: bool = False  # too many combinations of losses: some were not tried
    blocking: str = ""  # the loss that could not be restarted with one copy more
    refused: Rejection | None = None  # why one more copy does not fit
    stranded: Rejection | None = None  # the VM of that loss, by its key, that finds no host


def capacity(
    engine: Engine,
    request: PlaceRequest,
    survive: Scope | None = None,
    losses: int = 1,
    placed: Iterable[PlaceRequest] = (),
) -> CapacityAnswer:
    """Count the copies of a request that fit, on a snapshot: the fleet does not change.

    `placed` is what VMs that are there would ask for now: losses are rehearsed with the rules that
    bind them now, not with those of the time when they were placed.
    """
    world = WhatIf.like(engine)
    world.bind_placed(placed)
    strategy = world.strategy_of(request).name
    if survive is None:
        count = _fill(world, request)
        return CapacityAnswer(count, strategy, refused=world.reject(request))
    start = world.cursor
    copies = _count_one_by_one(world, request)
    world.cursor = start
    rehearsal = Rehearsal(
        world, request, copies, lambda first, count: place_copies(world, request, first, count)
    )
    count, blocking = rehearsal.most_that_survive(survive, losses)
    refused = world.reject(request) if count == len(copies) else None
    stranded = rehearsal.stranded() if blocking else None
    return CapacityAnswer(
        count, strategy, survive, losses, rehearsal.sampled, blocking, refused, stranded
    )


def _fill(world: WhatIf, request: PlaceRequest) -> int:
    """Fill the world with copies and return their number."""
    asks = request.demand.devices is not None or request.demand.numa.value != "any"
    if (
        request.groups
        or (asks and world.strategy_of(request).needs_mix)
        or world.is_restless(request)  # asked again for every copy there
    ):
        return len(_count_one_by_one(world, request))
    return int(world.fill_hosts(request).sum())


def _count_one_by_one(world: WhatIf, request: PlaceRequest) -> Int64Array:
    """Place copies until the first refusal and return the hosts they went to."""
    rows: list[Int64Array] = []
    total = 0
    while total < MOST_COPIES:
        placed = place_copies(world, request, total, _CHUNK)
        rows.append(placed)
        total += len(placed)
        if len(placed) < _CHUNK:
            break
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)


def place_copies(world: WhatIf, request: PlaceRequest, first: int, count: int) -> Int64Array:
    """Place copies until one is refused and return the hosts of those before it."""
    if world.is_restless(request):
        placed = []
        for index in range(first, first + count):
            name = copy_name(request, index)
            row = world.place_copy(replace(request, name=name, key=name))
            if row < 0:
                break
            placed.append(row)
        return np.array(placed, np.int64)
    rows = world.place_columns(copies_of(world, request, first, count), request.strategy).row
    refused = np.flatnonzero(rows < 0)
    return rows[: int(refused[0]) if len(refused) else count].astype(np.int64)


def copies_of(world: WhatIf, request: PlaceRequest, first: int, count: int) -> RequestColumns:
    """Return copies of a request as columns; each draws from a seed of its own."""
    fleet = world.fleet
    vector = fleet.vector(request.demand)
    terms = world.terms_number(request)
    group_set = fleet.groups.set_number(request.groups)
    seeds = np.zeros(0, np.int64)
    if world.strategy_of(request).draws:
        names = (replace(request, name=f"{request.name}-{first + index}") for index in range(count))
        seeds = np.array([seed_of(each) for each in names], np.int64)
    return RequestColumns(
        np.tile(vector, (count, 1)),
        np.full(count, terms, np.int32),
        np.full(count, group_set, np.int32),
        seeds,
        np.tile(expected_vector(request.expected), (count, 1)),
    )
