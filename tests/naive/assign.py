"""Twins of the choice of devices and NUMA cells on one host: every combination is looked at."""

from collections.abc import Sequence
from itertools import combinations

from roost.model.hosts import Cell, Device
from roost.model.resources import DeviceDemand, NumaMode


def device_suits(device: Device, free: int, ask: DeviceDemand) -> bool:
    """Say whether one device can serve one share of a request."""
    return (
        free >= ask.milli
        and (not ask.models or device.model in ask.models)
        and device.memory_bytes >= ask.memory_bytes
        and (device.shareable or ask.milli == 1000)
    )


def pick_devices(
    devices: Sequence[Device], free: Sequence[int], ask: DeviceDemand
) -> tuple[int, ...]:
    """Return the tightest devices that suffice, lowest position first among equals; or none."""
    suits = [at for at, device in enumerate(devices) if device_suits(device, free[at], ask)]
    if len(suits) < ask.count:
        return ()
    return tuple(sorted(sorted(suits, key=lambda at: (free[at], at))[: ask.count]))


def free_share(cell: Cell, free: Sequence[int]) -> int:
    """Return the scarcer of a cell's free shares of cpu and memory, in 2^-14."""
    cpu = free[0] * 2**14 // max(1, cell.cpu_milli)
    memory = free[1] * 2**14 // max(1, cell.memory_bytes)
    return min(cpu, memory)


def pick_cells(
    cells: Sequence[Cell],
    free: Sequence[Sequence[int]],
    amounts: tuple[int, int],
    mode: NumaMode,
    rule: str,
) -> tuple[int, ...]:
    """Return the cell or pair of cells that suffices and that the rule prefers; or none.

    Rules: "lowest" position, "tightest" or "emptiest" by free share. The lower cell of a pair
    takes the larger half.
    """
    larger = [amount - amount // 2 for amount in amounts]
    smaller = [amount // 2 for amount in amounts]
    if mode is NumaMode.ONE_CELL:
        needs = {(at,): [amounts] for at in range(len(cells))}
    else:
        needs = {pair: [larger, smaller] for pair in combinations(range(len(cells)), 2)}
    suffices = [
        picked
        for picked, need in needs.items()
        if all(
            free[at][part] >= amount[part]
            for at, amount in zip(picked, need, strict=True)
            for part in range(2)
        )
    ]
    sign = {"lowest": 0, "tightest": 1, "emptiest": -1}[rule]

    def worth(picked: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return sign * sum(free_share(cells[at], free[at]) for at in picked), picked

    return min(suffices, key=worth, default=())
