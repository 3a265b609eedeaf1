"""The twin of `fragmentation`: what typical requests could still get out of a host.

Written from the strategy's description (docs/adr/0007): worth is the sum over the typical
requests of size x slots, in 1/1024 of a slot; a placement costs the worth that goes.
"""

from roost.model.hosts import HostSpec
from roost.model.resources import Demand, NumaMode
from roost.placement.mix import Mix, TypicalRequest
from tests.naive.scores import KEEP_DEVICES, WEIGHT_ONE

SLOT = 1024
SCORE_ONE = 10 * 2**30


class Box:
    """One host's free amounts."""

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        self.cpu = spec.cpu.capacity
        self.memory = spec.memory.capacity
        self.devices = [1000 for _ in spec.devices]
        self.cells = [[cell.cpu_milli, cell.memory_bytes] for cell in spec.cells]

    def copy(self) -> "Box":
        """Return an independent copy."""
        other = Box(self.spec)
        other.cpu, other.memory = self.cpu, self.memory
        other.devices, other.cells = list(self.devices), [list(cell) for cell in self.cells]
        return other

    def take(self, demand: Demand, devices: tuple[int, ...], cells: tuple[int, ...]) -> "Box":
        """Return the box after a placement."""
        after = self.copy()
        after.cpu -= demand.cpu_milli
        after.memory -= demand.memory_bytes
        for device in devices:
            after.devices[device] -= demand.devices.milli if demand.devices else 0
        for cell in cells:
            after.cells[cell][0] -= demand.cpu_milli // len(cells)
            after.cells[cell][1] -= demand.memory_bytes // len(cells)
        return after

    def choices(self, demand: Demand) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return every way to take the VM: one device or none, one cell, two or none."""
        if self.cpu < demand.cpu_milli or self.memory < demand.memory_bytes:
            return []
        devices: list[tuple[int, ...]] = [()]
        if demand.devices is not None:
            suits = [
                at
                for at, free in enumerate(self.devices)
                if free >= demand.devices.milli
                and (
                    not demand.devices.models
                    or self.spec.devices[at].model in demand.devices.models
                )
            ]
            suits.sort(key=lambda at: (self.devices[at], at))
            count = demand.devices.count
            if len(suits) < count:
                return []
            devices = [(at,) for at in suits] if count == 1 else [tuple(suits[:count])]
        cells: list[tuple[int, ...]] = [()]
        need = (demand.cpu_milli, demand.memory_bytes)
        if demand.numa is NumaMode.ONE_CELL:
            cells = [
                (at,)
                for at, cell in enumerate(self.cells)
                if cell[0] >= need[0] and cell[1] >= need[1]
            ]
        elif demand.numa is NumaMode.SPLIT:
            fits = all(cell[0] * 2 >= need[0] and cell[1] * 2 >= need[1] for cell in self.cells)
            cells = [(0, 1)] if fits and len(self.cells) == 2 else []
        return [(device, cell) for device in devices for cell in cells]


def slots(box: Box, kind: TypicalRequest) -> int:
    """Return how many of a kind a box could still take, in 1/1024."""
    if kind.devices is not None:
        ask = kind.devices
        shares = sum(
            free // ask.milli
            for free, device in zip(box.devices, box.spec.devices, strict=True)
            if not ask.models or device.model in ask.models
        )
        whole = shares // ask.count * SLOT
        by_cpu = max(0, box.cpu) * SLOT // kind.cpu_milli
        return min(whole, by_cpu, max(0, box.memory) * SLOT // kind.memory_bytes)
    if kind.numa is NumaMode.ANY:
        boxes = [(box.cpu, box.memory, 1)]
    elif kind.numa is NumaMode.ONE_CELL:
        boxes = [(cpu, memory, 1) for cpu, memory in box.cells]
    elif box.cells:
        boxes = [(min(c for c, _ in box.cells), min(m for _, m in box.cells), 2)]
    else:
        boxes = []
    return sum(
        min(
            cpu * SLOT // (kind.cpu_milli // parts) // SLOT * SLOT,
            memory * SLOT // (kind.memory_bytes // parts),
        )
        for cpu, memory, parts in boxes
    )


def worth(box: Box, mix: Mix) -> int:
    """Return size x slots over all kinds; with devices in the mix, kinds without do not count."""
    with_devices = any(kind.devices for kind in mix.kinds)
    total = 0
    for kind in mix.kinds:
        if kind.devices is not None:
            total += kind.devices.count * kind.devices.milli * slots(box, kind)
        elif not with_devices:
            total += kind.cpu_milli * slots(box, kind)
    return total


def unit(mix: Mix) -> int:
    """Return the score of one unit of worth."""
    whole = 1000 if any(kind.devices for kind in mix.kinds) else 64_000
    return max(1, SCORE_ONE // (SLOT * whole * max(1, len(mix.kinds))))


def primary(box: Box, mix: Mix) -> int:
    """Return what a box has left of the primary resource."""
    if any(kind.devices for kind in mix.kinds):
        return sum(box.devices)
    return box.cpu


def best(
    boxes: list[Box], demand: Demand, mix: Mix
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
    """Return (host number, score, devices, cells) of the best box, or None."""
    found = []
    for number, box in enumerate(boxes):
        options = box.choices(demand)
        if not options:
            continue
        left = [worth(box.take(demand, *option), mix) for option in options]
        at = left.index(max(left))
        score = (worth(box, mix) - left[at]) * unit(mix)
        if box.spec.devices and demand.devices is None:
            score += KEEP_DEVICES * WEIGHT_ONE
        found.append((score, primary(box, mix), number, *options[at]))
    if not found:
        return None
    score, _, number, devices, cells = min(found)
    return number, score, devices, cells
