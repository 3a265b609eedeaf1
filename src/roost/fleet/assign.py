"""Which devices and which NUMA cells of a host a VM would get.

Plain functions on arrays and integers: the placement kernels compile them as they stand, so the
fleet and the engine can never disagree. Both return bit masks of positions, 0 when nothing fits.
"""

from roost.fleet.layout import HostArrays
from roost.model.resources import WHOLE_DEVICE

#: Cell rules of the strategies.
LOWEST, TIGHTEST, EMPTIEST = 0, 1, 2

#: NUMA modes as numbers, in the order of `NumaMode`.
ANY, ONE_CELL, SPLIT = 0, 1, 2

_WHOLE = WHOLE_DEVICE
_SHARE_BITS = 14  # 256 TiB shifted by so much still fits into 63 bits
_LEAST = -(2**62)


def pick_devices(
    hosts: HostArrays, row: int, count: int, milli: int, memory: int, models: int
) -> int:
    """Choose devices of a host for a VM: the tightest that suffice, lowest position first.

    `models` is a bit mask of model numbers, 0 for any. A device that is not shareable takes whole
    requests only.
    """
    picked = 0
    for _ in range(count):
        best = -1
        for device in range(hosts.device_free.shape[1]):
            free = hosts.device_free[row, device]
            if free < milli or picked >> device & 1:
                continue
            if models and not models >> hosts.device_info[row, device, 0] & 1:
                continue
            if hosts.device_info[row, device, 1] < memory:
                continue
            if milli < _WHOLE and hosts.device_info[row, device, 2] == 0:
                continue
            if best < 0 or free < hosts.device_free[row, best]:
                best = device
        if best < 0:
            return 0
        picked |= 1 << best
    return picked


def pick_cells(hosts: HostArrays, row: int, cpu: int, memory: int, mode: int, rule: int) -> int:
    """Choose the NUMA cell, or pair of cells, that the rule prefers among those that suffice.

    A cell's fullness is the scarcer of its free shares of cpu and memory. A split VM puts the
    larger half of an odd amount on the lower cell.
    """
    cells = hosts.cell_free.shape[1]
    picked = 0
    best = _LEAST
    for first in range(cells):
        if mode == ONE_CELL:
            need_cpu, need_memory = cpu, memory
        else:
            need_cpu, need_memory = cpu - cpu // 2, memory - memory // 2
        if (
            hosts.cell_free[row, first, 0] < need_cpu
            or hosts.cell_free[row, first, 1] < need_memory
        ):
            continue
        share = min(
            (hosts.cell_free[row, first, 0] << _SHARE_BITS)
            // max(1, hosts.cell_capacity[row, first, 0]),
            (hosts.cell_free[row, first, 1] << _SHARE_BITS)
            // max(1, hosts.cell_capacity[row, first, 1]),
        )
        if mode == ONE_CELL:
            worth = 0 if rule == LOWEST else (share if rule == EMPTIEST else -share)
            if worth > best:
                best = worth
                picked = 1 << first
            continue
        for second in range(first + 1, cells):
            if (
                hosts.cell_free[row, second, 0] < cpu // 2
                or hosts.cell_free[row, second, 1] < memory // 2
            ):
                continue
            other = min(
                (hosts.cell_free[row, second, 0] << _SHARE_BITS)
                // max(1, hosts.cell_capacity[row, second, 0]),
                (hosts.cell_free[row, second, 1] << _SHARE_BITS)
                // max(1, hosts.cell_capacity[row, second, 1]),
            )
            both = share + other
            worth = 0 if rule == LOWEST else (both if rule == EMPTIEST else -both)
            if worth > best:
                best = worth
                picked = 1 << first | 1 << second
    return picked


def positions(mask: int) -> tuple[int, ...]:
    """Return the positions in a bit mask."""
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


def mask_of(places: tuple[int, ...]) -> int:
    """Return the bit mask of positions."""
    return sum(1 << place for place in places) if places else 0
