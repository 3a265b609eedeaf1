"""Keys: the part of a host's score that does not depend on the request.

For most strategies the request only adds the same amount to every host, so one order of the hosts
by key serves all requests. SCORE_ONE is one whole score; lower is better everywhere.
"""

from roost.base.units import GIB, TIB
from roost.fleet.layout import CPU, DISK, MEMORY, HostArrays
from roost.placement.kernels.compiling import inlined, kernel
from roost.placement.kernels.fixed_point import MOST_WHOLES, RATIO_BITS, RATIO_ONE, ratio

#: One whole score: weights are tenths of it (4 cpu + 4 memory + 2 disk).
SCORE_ONE = 10 * RATIO_ONE

#: The reference host that `best_fit` and its relatives measure free amounts against.
REFERENCE_CPU = 64_000
REFERENCE_MEMORY = 256 * GIB
REFERENCE_DISK = 4 * TIB

#: Which key a ranking is ordered by; the last two are how unevenly a host's NUMA cells are free,
#: and its free cpu and memory taken together, the most first.
KEY_POSITION, KEY_LOAD, KEY_FREE, KEY_FREE_DOWN, KEY_VMS, KEY_CELLS, KEY_PAIR_DOWN = range(7)
KEY_KINDS = 7

_PER_VM = SCORE_ONE // 100


@inlined
def load(hosts: HostArrays, row: int) -> int:
    """Return 0.4 cpu + 0.4 memory + 0.2 disk of committed / capacity."""
    return (
        4 * ratio(hosts.committed[row, CPU], hosts.capacity[row, CPU])
        + 4 * ratio(hosts.committed[row, MEMORY], hosts.capacity[row, MEMORY])
        + 2 * ratio(hosts.committed[row, DISK], hosts.capacity[row, DISK])
    )


@inlined
def against_reference(cpu: int, memory: int, disk: int) -> int:
    """Return 0.4 cpu + 0.4 memory + 0.2 disk, each over the reference host."""
    return (
        4 * ratio(cpu, REFERENCE_CPU)
        + 4 * ratio(memory, REFERENCE_MEMORY)
        + 2 * ratio(disk, REFERENCE_DISK)
    )


@inlined
def imbalance(hosts: HostArrays, row: int) -> int:
    """Return how unevenly a host's NUMA cells are free, by the scarcer of cpu and memory."""
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
    return 10 * (most - least) if most >= 0 else 0


@inlined
def host_key(kind: int, hosts: HostArrays, row: int) -> int:
    """Return the key of one host for a ranking of this kind."""
    if kind == KEY_LOAD:
        return load(hosts, row)
    if kind == KEY_FREE or kind == KEY_FREE_DOWN:
        free = against_reference(
            hosts.headroom[row, CPU], hosts.headroom[row, MEMORY], hosts.headroom[row, DISK]
        )
        return free if kind == KEY_FREE else -free
    if kind == KEY_VMS:
        return hosts.vm_count[row] * _PER_VM
    if kind == KEY_CELLS:
        return SCORE_ONE - imbalance(hosts, row)
    if kind == KEY_PAIR_DOWN:
        cpu, memory = hosts.headroom[row, CPU], hosts.headroom[row, MEMORY]
        return -ratio(cpu, REFERENCE_CPU) - ratio(memory, REFERENCE_MEMORY)
    return 0


@kernel
def request_key(kind: int, cpu: int, memory: int, disk: int) -> int:
    """Return what a request takes off the key of any host that takes it."""
    if kind == KEY_FREE:
        return against_reference(cpu, memory, disk)
    if kind == KEY_FREE_DOWN:
        return -against_reference(cpu, memory, disk)
    return 0
