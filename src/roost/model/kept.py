"""Room that a host keeps free for owners: amounts, places for VMs, and counters.

A counter is what only some hosts have, under the name by which the ledger counts it. A device and
a NUMA cell have a position on their host, so what is kept of them is kept of a certain one:

    x:NAME              units of an extended resource
    device:POSITION     thousandths of a device
    cell:POSITION:cpu   millicores of a NUMA cell, `cell:POSITION:memory` its bytes
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roost.model.resources import Demand

#: Amounts by counter, in the order of their names; none is 0.
Counters = tuple[tuple[str, int], ...]

#: What of a cell is counted, in the order of the columns that the engine has for it.
CELL_PARTS = ("cpu", "memory")


class Kept(NamedTuple):
    """So much of each resource that is not for everybody."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    vms: int = 0
    counters: Counters = ()

    @classmethod
    def of(cls, limits: Iterable[int], counters: Counters = ()) -> "Kept":
        """Return what is kept by amounts in the order of the fields, and counters."""
        cpu_milli, memory_bytes, disk_bytes, vms = limits
        return cls(cpu_milli, memory_bytes, disk_bytes, vms, counters)

    @property
    def limits(self) -> tuple[int, int, int, int]:
        """Return what is kept of that which every host has."""
        return (self.cpu_milli, self.memory_bytes, self.disk_bytes, self.vms)

    @property
    def extended(self) -> list[tuple[str, int]]:
        """Return what is kept of extended resources, by name."""
        return [(name[2:], amount) for name, amount in self.counters if name.startswith("x:")]

    @property
    def parts(self) -> Counters:
        """Return what is kept of devices and cells."""
        return tuple(each for each in self.counters if not each[0].startswith("x:"))

    def is_within(self, other: "Kept") -> bool:
        """Say whether of nothing more is kept than the other keeps."""
        most = dict(other.counters)
        return all(a <= b for a, b in zip(self.limits, other.limits, strict=True)) and all(
            amount <= most.get(name, 0) for name, amount in self.counters
        )

    def greatest(self, other: "Kept") -> "Kept":
        """Return the greater of both, resource by resource."""
        mine, others = dict(self.counters), dict(other.counters)
        return Kept.of(
            map(max, self.limits, other.limits),
            counters_in_order(
                {name: max(mine.get(name, 0), others.get(name, 0)) for name in mine | others}
            ),
        )


NOTHING_KEPT = Kept()


def counters_in_order(amounts: Mapping[str, int]) -> Counters:
    """Return amounts by counter as they are compared: in order, and without what is 0."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def device_counter(position: int) -> str:
    """Return the counter of a device."""
    return f"device:{position:02d}"


def cell_counter(position: int, part: str) -> str:
    """Return the counter of a NUMA cell's cpu or memory."""
    return f"cell:{position:02d}:{part}"


def place_of(counter: str) -> tuple[int, int]:
    """Return the position that a device's or a cell's counter names, and which part of a cell."""
    _, _, place = counter.partition(":")
    position, _, part = place.partition(":")
    return int(position), CELL_PARTS.index(part) if part else 0


def counters_of(demand: Demand, devices: Iterable[int], cells: Iterable[int]) -> Counters:
    """Return what a demand takes of counters on these devices and cells, in ascending order.

    Two cells share cpu and memory; the lower one takes the larger half of an odd amount.
    """
    found = [(f"x:{name}", amount) for name, amount in demand.extended if amount]
    if demand.devices is not None:
        found += [(device_counter(at), demand.devices.milli) for at in devices]
    places = tuple(cells)
    for at, cell in enumerate(places):
        for part, whole in zip(CELL_PARTS, (demand.cpu_milli, demand.memory_bytes), strict=True):
            share = whole // len(places) + (1 if at < whole % len(places) else 0)
            found.append((cell_counter(cell, part), share))
    return tuple(sorted(found))
