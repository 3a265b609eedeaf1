"""Let an owner's VM take the devices and NUMA cells that are kept for it, before any others.

Amounts are alike wherever they come from; a device is not. A VM that draws on a reservation and
took another device than its own would leave that one held, and have two. So where an owner holds
devices or cells, the engine is first asked with all others of those hosts kept out of sight.
"""

from roost.fleet.fleet import Fleet
from roost.model.kept import (
    CELL_PARTS,
    Kept,
    cell_counter,
    counters_in_order,
    device_counter,
)
from roost.model.resources import Demand, NumaMode

#: More than any device or cell has.
_ALL = 2**62


def asks_for_parts(demand: Demand) -> bool:
    """Say whether a VM gets certain devices or cells of its host."""
    return demand.devices is not None or demand.numa is not NumaMode.ANY


def asks_for(demand: Demand, counter: str) -> bool:
    """Say whether a VM takes something of a kind of counter."""
    kind, _, name = counter.partition(":")
    if kind == "x":
        return any(amount and each == name for each, amount in demand.extended)
    return demand.devices is not None if kind == "device" else demand.numa is not NumaMode.ANY


def but_own(fleet: Fleet, row: int, kept: Kept, own: frozenset[str]) -> Kept:
    """Return what a host keeps if of devices and of cells only those of an owner are in sight.

    Of which it holds none, of those all are.
    """
    counters, arrays = dict(kept.counters), fleet.hosts.arrays
    every = {
        "device": [[device_counter(at)] for at in range(arrays.device_free.shape[1])],
        "cell": [
            [cell_counter(at, part) for part in CELL_PARTS]
            for at in range(arrays.cell_free.shape[1])
        ],
    }
    for kind, places in every.items():
        if any(name.startswith(f"{kind}:") for name in own):
            for names in places:
                if own.isdisjoint(names):
                    counters.update(dict.fromkeys(names, _ALL))
    return kept._replace(counters=counters_in_order(counters))
