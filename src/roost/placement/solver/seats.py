"""The ways in which a VM can sit on a host: which devices and NUMA cells it takes there."""

from itertools import combinations

from roost.fleet.description import model_mask
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.resources import NumaMode

#: Sets of devices on one host that a program looks at; beyond it, only the tightest ones.
MOST_SETS = 64

Seat = tuple[tuple[int, ...], tuple[int, ...]]


def seats_on(fleet: Fleet, request: PlaceRequest, row: int) -> tuple[list[Seat], bool]:
    """Return the devices and cells that a VM could take on a host, and whether these are all."""
    devices, complete = _device_sets(fleet, request, row)
    return [(some, cells) for some in devices for cells in _cells(fleet, request, row)], complete


def _device_sets(
    fleet: Fleet, request: PlaceRequest, row: int
) -> tuple[list[tuple[int, ...]], bool]:
    ask = request.demand.devices
    if ask is None:
        return [()], True
    arrays = fleet.hosts.arrays
    mask = model_mask(fleet, ask.models)
    suitable = [
        device
        for device, free in enumerate(arrays.device_free[row].tolist())
        if free >= ask.milli
        and arrays.device_info[row, device, 1] >= ask.memory_bytes
        and (not mask or mask >> int(arrays.device_info[row, device, 0]) & 1)
        and (arrays.device_info[row, device, 2] or ask.milli == 1000)
    ]
    suitable.sort(key=lambda device: (arrays.device_free[row, device], device))
    sets: list[tuple[int, ...]] = []
    for some in combinations(suitable, ask.count):
        if len(sets) == MOST_SETS:
            return sets, False
        sets.append(tuple(sorted(some)))
    return sets, True


def _cells(fleet: Fleet, request: PlaceRequest, row: int) -> list[tuple[int, ...]]:
    if request.demand.numa is NumaMode.ANY:
        return [()]
    known = [c for c, free in enumerate(fleet.hosts.arrays.cell_free[row]) if free[0] >= 0]
    if request.demand.numa is NumaMode.ONE_CELL:
        return [(cell,) for cell in known]
    return list(combinations(known, 2))
