"""Keys: the part of a host's score that does not depend on the request.

For most strategies the request only adds the same amount to every host, so one order of the hosts
by key serves all requests. SCORE_ONE is one whole score; lower is better everywhere.
"""

from roost.base.units import GIB, TIB
from roost.fleet.layout import CPU, DEVICE_TOTAL, DISK, KNOWN, MEMORY, HostArrays
from roost.placement.kernels.compiling import inlined, kernel
from roost.placement.kernels.fixed_point import MOST_WHOLES, RATIO_BITS, RATIO_ONE, ratio

#: One whole score: weights are tenths of it (4 cpu + 4 memory + 2 disk).
SCORE_ONE = 10 * RATIO_ONE

#: The reference host that `best_fit` and its relatives measure free amounts against.
REFERENCE_CPU = 64_000
REFERENCE_MEMORY = 256 * GIB
REFERENCE_DISK = 4 * TIB
REFERENCE_DEVICES = 8_000  # thousandths

#: What free devices weigh in `best_fit` and `dot_product`, beside 10 for cpu, memory and disk
#: together: on a fleet of devices they are what is dear.
DEVICES_WEIGHT = 10

#: Which key a ranking is ordered by; the last three are how unevenly a host's NUMA cells are free,
#: its free cpu and memory taken together, the most first, and the load that is predicted of it.
KEY_POSITION, KEY_LOAD, KEY_FREE, KEY_FREE_DOWN, KEY_VMS, KEY_CELLS, KEY_PAIR_DOWN = range(7)
KEY_PREDICTED = 7
KEY_KINDS = 8

#: A kind with weights of its own has them above its number: cpu, memory and disk, a byte each.
KIND_BITS = 8
KIND_MASK = (1 << KIND_BITS) - 1
WEIGHT_BITS = 8

_PER_VM = SCORE_ONE // 100

#: Fraction bits of the difference between two cells' free shares.
EVEN_BITS = 20

#: A predicted load of nine times what the host has counts as nine; no prediction is more than that.
MOST_PREDICTED = 9 * RATIO_ONE
NOT_PREDICTED = 10 * SCORE_ONE


def weighted_kind(kind: int, cpu: int, memory: int, disk: int) -> int:
    """Return a kind of key with other weights than 4, 4 and 2; each is 0 to 100, not all 0."""
    weights = cpu | memory << WEIGHT_BITS | disk << 2 * WEIGHT_BITS
    return kind | weights << KIND_BITS


@inlined
def share(kind: int, resource: int, part: int) -> int:
    """Return what one resource's ratio adds to a key: 10 x weight x ratio over all weights.

    Rounded down for each resource by itself, so that the addends of a score are exact. The ratio
    is divided first, so that no product passes 2^63.
    """
    weights = kind >> KIND_BITS
    if weights == 0:
        return (2 if resource == DISK else 4) * part
    mask = (1 << WEIGHT_BITS) - 1
    whole = (weights & mask) + (weights >> WEIGHT_BITS & mask) + (weights >> 2 * WEIGHT_BITS & mask)
    weight = 10 * (weights >> resource * WEIGHT_BITS & mask)
    return weight * (part // whole) + weight * (part % whole) // whole


@inlined
def load(kind: int, hosts: HostArrays, row: int) -> int:
    """Return committed / capacity of cpu, memory and disk, by their weights."""
    committed, capacity = hosts.committed, hosts.capacity
    return (
        share(kind, CPU, ratio(committed[row, CPU], capacity[row, CPU]))
        + share(kind, MEMORY, ratio(committed[row, MEMORY], capacity[row, MEMORY]))
        + share(kind, DISK, ratio(committed[row, DISK], capacity[row, DISK]))
    )


@inlined
def against_reference(kind: int, cpu: int, memory: int, disk: int) -> int:
    """Return cpu, memory and disk, each over the reference host, by their weights."""
    return (
        share(kind, CPU, ratio(cpu, REFERENCE_CPU))
        + share(kind, MEMORY, ratio(memory, REFERENCE_MEMORY))
        + share(kind, DISK, ratio(disk, REFERENCE_DISK))
    )


@inlined
def free_devices(hosts: HostArrays, row: int) -> int:
    """Return the free thousandths of all devices of a host."""
    return hosts.headroom[row, hosts.committed.shape[1] + DEVICE_TOTAL]


@inlined
def imbalance(hosts: HostArrays, row: int) -> int:
    """Return how unevenly a host's NUMA cells are free, by the scarcer of cpu and memory.

    Rounded to EVEN_BITS: shares are rounded down by up to 2^-30 each, and without it that error
    would decide between hosts that are equally uneven.
    """
    most, least = -1, MOST_WHOLES << RATIO_BITS
    for cell in range(hosts.cell_free.shape[1]):
        # A cell that promised too much has less than nothing free; one that is not there, no room.
        if hosts.cell_capacity[row, cell, 0] + hosts.cell_capacity[row, cell, 1] > 0:
            free = min(
                ratio(hosts.cell_free[row, cell, 0], hosts.cell_capacity[row, cell, 0]),
                ratio(hosts.cell_free[row, cell, 1], hosts.cell_capacity[row, cell, 1]),
            )
            most = max(most, free)
            least = min(least, free)
    if most < 0:
        return 0
    half = 1 << RATIO_BITS - EVEN_BITS - 1
    return 10 * (most - least + half >> RATIO_BITS - EVEN_BITS << RATIO_BITS - EVEN_BITS)


@inlined
def predicted_share(hosts: HostArrays, row: int, resource: int) -> int:
    """Return what the predicted use of cpu or memory adds to a key: half of its share."""
    used = ratio(hosts.predicted[row, resource], hosts.total[row, resource])
    return 5 * min(used, MOST_PREDICTED)


@inlined
def predicted_load(kind: int, hosts: HostArrays, row: int) -> int:
    """Return the predicted use over what the host has; unknown is more, then by what is promised.

    Use is of the machine itself, so the share is of its total, not of the overcommitted capacity.
    """
    if hosts.predicted[row, KNOWN] == 0:
        return NOT_PREDICTED + load(kind, hosts, row)
    return predicted_share(hosts, row, CPU) + predicted_share(hosts, row, MEMORY)


@inlined
def host_key(kind: int, hosts: HostArrays, row: int) -> int:
    """Return the key of one host for a ranking of this kind."""
    plain = kind & KIND_MASK
    if plain == KEY_LOAD:
        return load(kind, hosts, row)
    if plain == KEY_FREE or plain == KEY_FREE_DOWN:
        room = hosts.headroom
        free = against_reference(kind, room[row, CPU], room[row, MEMORY], room[row, DISK])
        if plain == KEY_FREE_DOWN:
            return -free
        return free + DEVICES_WEIGHT * ratio(free_devices(hosts, row), REFERENCE_DEVICES)
    if kind == KEY_VMS:
        return hosts.vm_count[row] * _PER_VM
    if kind == KEY_CELLS:
        return SCORE_ONE - imbalance(hosts, row)
    if kind == KEY_PREDICTED:
        return predicted_load(kind, hosts, row)
    if kind == KEY_PAIR_DOWN:
        cpu, memory = hosts.headroom[row, CPU], hosts.headroom[row, MEMORY]
        return -ratio(cpu, REFERENCE_CPU) - ratio(memory, REFERENCE_MEMORY)
    return 0


@kernel
def request_key(kind: int, cpu: int, memory: int, disk: int, devices: int) -> int:
    """Return what a request takes off the key of any host that takes it.

    `devices` is in thousandths, all devices together.
    """
    plain = kind & KIND_MASK
    if plain == KEY_FREE:
        taken = DEVICES_WEIGHT * ratio(devices, REFERENCE_DEVICES)
        return against_reference(kind, cpu, memory, disk) + taken
    if plain == KEY_FREE_DOWN:
        return -against_reference(kind, cpu, memory, disk)
    return 0
