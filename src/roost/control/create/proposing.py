"""What a placement takes beside plain amounts, and the line that tells an operator of it."""

from functools import lru_cache

from roost.base.units import GIB, format_cpu
from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, DISK, MEMORY
from roost.model.flow import Placement
from roost.model.resources import Demand


def counters_of(demand: Demand, placement: Placement) -> tuple[tuple[str, int], ...]:
    """Return the rows of host_counters that a placement charges, in ascending order.

    Two cells share cpu and memory; the lower one takes the larger half of an odd amount.
    """
    if not (demand.extended or placement.devices or placement.cells):
        return ()
    found = [(f"x:{name}", amount) for name, amount in demand.extended if amount]
    if demand.devices is not None:
        found += [(f"device:{at:02d}", demand.devices.milli) for at in placement.devices]
    count = len(placement.cells)
    for place, cell in enumerate(placement.cells):
        for name, whole in (("cpu", demand.cpu_milli), ("memory", demand.memory_bytes)):
            share = whole // count + (1 if place < whole % count else 0)
            found.append((f"cell:{cell:02d}:{name}", share))
    return tuple(sorted(found))


def selected_line(fleet: Fleet, row: int, host: str, vm: str) -> str:
    """Say where a VM went: committed after this placement, of capacity, in 2^30 bytes."""
    committed = fleet.hosts.arrays.committed[row].tolist()
    capacity = fleet.hosts.arrays.capacity[row].tolist()
    return (
        f"Selected agent '{host}' for VM '{vm}' - "
        f"CPU: {format_cpu(committed[CPU])}/{format_cpu(capacity[CPU])}, "
        f"Memory: {_gib(committed[MEMORY])}/{_gib(capacity[MEMORY])}, "
        f"Disk: {_gib(committed[DISK])}/{_gib(capacity[DISK])}"
    )


@lru_cache(maxsize=4096)
def _gib(amount: int) -> str:
    """Write 2^30 bytes as GB with at most one decimal, the way that line has always been read."""
    return f"{amount / GIB:.1f}".removesuffix(".0") + "GB"
