"""Huawei-East-1, SPANE protocol: queue of VMs on a few two-cell (NUMA) servers.

Requests are served strictly in order; one that fits nowhere waits for departures and holds up
everything behind it. The figure is the total waiting time of an episode. No policy here sees a
lifetime, nor a request that has not reached the head of the queue; the shapes known to
`FRAGMENTATION` are those that have arrived in the trace so far.
"""

import numpy as np

from benchmarks.packing.huawei_trace import (
    ARRIVAL,
    CPU,
    LIFETIME,
    MEMORY,
    SHAPE_CPU,
    SHAPE_FIRST,
    SHAPE_MEMORY,
    SHAPE_SPLIT,
    SHAPE_WEIGHT,
    SPLIT_ABOVE_GB,
    Episodes,
    Ints,
    shapes_of,
)
from benchmarks.packing.slots import FLUID, WHOLE, cell_slots, kernel

CELL_CORES = 40
CELL_MEMORY_GB = 90

FIRST_FIT, BALANCE_FIT, BEST_FIT, FRAGMENTATION, FRAGMENTATION_WHOLE = 0, 1, 2, 3, 4
#: Balance fit with its shares as whole numbers of 1/360, so that equals are equal.
BALANCE_FIT_EXACT = -1
POLICIES = {
    "first fit": FIRST_FIT,
    "balance fit": BALANCE_FIT,
    "best fit": BEST_FIT,
    "fragmentation": FRAGMENTATION,
    "fragmentation, whole slots": FRAGMENTATION_WHOLE,
}

NOWHERE = -1


def make_episodes(vms: Ints, starts: Ints, servers: int) -> Episodes:
    """Give each start its documented length; drop those that run past the end of the trace."""
    lengths = np.array([episode_length(vms, start, servers) for start in starts], dtype=np.int64)
    inside = (lengths > 0) & (starts + lengths <= len(vms))
    return Episodes(starts[inside], lengths[inside], {})


def run(vms: Ints, episodes: Episodes, servers: int, policy: int) -> Ints:
    """Return the total wait of each episode under one policy."""
    shapes = shapes_of(vms, exponent=2 if policy == FRAGMENTATION_WHOLE else 1)
    return simulate_all(vms, episodes.starts, episodes.lengths, servers, policy, shapes)


@kernel
def room(free: Ints, server: int, cell: int) -> int:
    """Return the scarcer free share of a cell, in 1/360."""
    cpu: int = free[server, cell, CPU] * (360 // CELL_CORES)
    memory: int = free[server, cell, MEMORY] * (360 // CELL_MEMORY_GB)
    return min(cpu, memory)


@kernel
def fits(free: Ints, server: int, cell: int, cpu: int, memory: int) -> bool:
    """Tell whether the demand fits in one cell."""
    return bool(free[server, cell, CPU] >= cpu and free[server, cell, MEMORY] >= memory)


@kernel
def feasible(free: Ints, spot: int, cpu: int, memory: int, split: bool) -> bool:
    """Tell whether the spot (2 * server + cell) takes the VM; a split VM uses spot cell 0."""
    server, cell = spot // 2, spot % 2
    if split:
        both = fits(free, server, 0, cpu, memory) and fits(free, server, 1, cpu, memory)
        return cell == 0 and both
    return fits(free, server, cell, cpu, memory)


@kernel
def commit(free: Ints, spot: int, cpu: int, memory: int, split: bool) -> None:
    """Take the demand (give back, if negative) in one cell, or in both if split."""
    for cell in range(2):
        if split or cell == spot % 2:
            free[spot // 2, cell, CPU] -= cpu
            free[spot // 2, cell, MEMORY] -= memory


@kernel
def server_value(single: Ints, double: Ints, free: Ints, server: int) -> int:
    """Sum the usable slots of a server; a split shape is bounded by the scarcer cell."""
    cpu0, memory0 = free[server, 0, CPU], free[server, 0, MEMORY]
    cpu1, memory1 = free[server, 1, CPU], free[server, 1, MEMORY]
    value: int = single[cpu0, memory0] + single[cpu1, memory1]
    value += double[min(cpu0, cpu1), min(memory0, memory1)]
    return value


@kernel
def fill_tables(single: Ints, double: Ints, shapes: Ints, now: int, rule: int) -> None:
    """Tabulate the value of every cell state over the shapes first seen at or before `now`."""
    single[:] = 0
    double[:] = 0
    for t in range(len(shapes)):
        if shapes[t, SHAPE_FIRST] > now:
            continue
        table = double if shapes[t, SHAPE_SPLIT] else single
        for cpu in range(CELL_CORES + 1):
            for memory in range(CELL_MEMORY_GB + 1):
                slots = cell_slots(cpu, memory, shapes[t, SHAPE_CPU], shapes[t, SHAPE_MEMORY], rule)
                table[cpu, memory] += shapes[t, SHAPE_WEIGHT] * slots


@kernel
def score(
    policy: int, free: Ints, spot: int, demand: tuple[int, int, bool], tables: tuple[Ints, Ints]
) -> int:
    """Return a policy's score of a feasible spot; lower is better, the first lowest wins."""
    server, cell = spot // 2, spot % 2
    cpu, memory, split = demand
    if policy == BEST_FIT:
        if split:
            return room(free, server, 0) + room(free, server, 1)
        return room(free, server, cell)
    if policy >= FRAGMENTATION:
        single, double = tables
        before = server_value(single, double, free, server)
        idle_cores: int = free[server, 0, CPU] + free[server, 1, CPU]
        commit(free, spot, cpu, memory, split)
        after = server_value(single, double, free, server)
        commit(free, spot, -cpu, -memory, split)
        return (before - after) * 256 + idle_cores
    return 0


@kernel
def choose_balance_fit(free: Ints, cpu: int, memory: int) -> int:
    """Return the spot in the most imbalanced server that fits: its emptier cell, else the other.

    Floats on purpose: the published rule compares them, and its ties depend on their rounding.
    """
    best, best_imbalance = NOWHERE, -1.0
    for server in range(free.shape[0]):
        first = min(free[server, 0, CPU] / CELL_CORES, free[server, 0, MEMORY] / CELL_MEMORY_GB)
        second = min(free[server, 1, CPU] / CELL_CORES, free[server, 1, MEMORY] / CELL_MEMORY_GB)
        cell = 0 if first >= second else 1
        if not fits(free, server, cell, cpu, memory):
            cell = 1 - cell
        if abs(first - second) > best_imbalance and fits(free, server, cell, cpu, memory):
            best, best_imbalance = 2 * server + cell, abs(first - second)
    return best


@kernel
def choose_balance_fit_exactly(free: Ints, cpu: int, memory: int) -> int:
    """Return what `choose_balance_fit` would without rounding: of equals, the first server."""
    best, best_imbalance = NOWHERE, -1
    for server in range(free.shape[0]):
        first, second = room(free, server, 0), room(free, server, 1)
        cell = 0 if first >= second else 1
        if not fits(free, server, cell, cpu, memory):
            cell = 1 - cell
        if abs(first - second) > best_imbalance and fits(free, server, cell, cpu, memory):
            best, best_imbalance = 2 * server + cell, abs(first - second)
    return best


@kernel
def choose(
    policy: int, free: Ints, demand: tuple[int, int, bool], tables: tuple[Ints, Ints]
) -> int:
    """Return the best spot for the demand, or NOWHERE."""
    if policy == BALANCE_FIT and not demand[2]:
        return choose_balance_fit(free, demand[0], demand[1])
    if policy == BALANCE_FIT_EXACT and not demand[2]:
        return choose_balance_fit_exactly(free, demand[0], demand[1])
    best, best_score = NOWHERE, 0
    for spot in range(2 * free.shape[0]):
        if feasible(free, spot, demand[0], demand[1], demand[2]):
            value = score(policy, free, spot, demand, tables)
            if best == NOWHERE or value < best_score:
                best, best_score = spot, value
    return best


@kernel
def empty_cluster(servers: int) -> Ints:
    """Return the free resources of idle servers, by server, cell and resource."""
    free = np.empty((servers, 2, 2), np.int64)
    free[:, :, CPU] = CELL_CORES
    free[:, :, MEMORY] = CELL_MEMORY_GB
    return free


@kernel
def release(free: Ints, running: Ints, count: int, now: int) -> int:
    """Apply the departures due by `now`; return how many VMs still run."""
    row = 0
    while row < count:
        if running[row, 0] > now:
            row += 1
            continue
        split = running[row, 4] == 1
        commit(free, running[row, 1], -running[row, 2], -running[row, 3], split)
        count -= 1
        running[row] = running[count]
    return count


@kernel
def demand_of(vms: Ints, index: int) -> tuple[int, int, bool]:
    """Return demand per cell (cpu, memory) and whether the VM takes both cells."""
    cpu, memory = vms[index, CPU], vms[index, MEMORY]
    if memory > SPLIT_ABOVE_GB:
        return cpu // 2, memory // 2, True
    return cpu, memory, False


@kernel
def simulate(vms: Ints, start: int, length: int, servers: int, policy: int, shapes: Ints) -> int:
    """Run one episode on an empty cluster and return its total waiting time in seconds."""
    free = empty_cluster(servers)
    single = np.zeros((CELL_CORES + 1, CELL_MEMORY_GB + 1), np.int64)
    double = np.zeros((CELL_CORES + 1, CELL_MEMORY_GB + 1), np.int64)
    rule = WHOLE if policy == FRAGMENTATION_WHOLE else FLUID
    running = np.empty((length, 5), np.int64)
    count, now, wait, known = 0, 0, 0, -1
    for index in range(start, start + length):
        if policy >= FRAGMENTATION:
            seen = int(np.sum(shapes[:, SHAPE_FIRST] <= index))
            if seen != known:
                fill_tables(single, double, shapes, index, rule)
                known = seen
        demand = demand_of(vms, index)
        now = max(now, vms[index, ARRIVAL])
        count = release(free, running, count, now)
        spot = choose(policy, free, demand, (single, double))
        while spot == NOWHERE:
            now = running[:count, 0].min()
            count = release(free, running, count, now)
            spot = choose(policy, free, demand, (single, double))
        commit(free, spot, demand[0], demand[1], demand[2])
        running[count, 0] = now + vms[index, LIFETIME]
        running[count, 1] = spot
        running[count, 2] = demand[0]
        running[count, 3] = demand[1]
        running[count, 4] = 1 if demand[2] else 0
        count += 1
        wait += now - vms[index, ARRIVAL]
    return wait


@kernel
def simulate_all(
    vms: Ints, starts: Ints, lengths: Ints, servers: int, policy: int, shapes: Ints
) -> Ints:
    """Run every episode; return the total waits."""
    waits = np.empty(len(starts), np.int64)
    for i in range(len(starts)):
        waits[i] = simulate(vms, starts[i], lengths[i], servers, policy, shapes)
    return waits


@kernel
def episode_length(vms: Ints, start: int, servers: int) -> int:
    """Count first fit's placements before its first refusal, plus 40; 0 if the trace ends first."""
    free = empty_cluster(servers)
    none = np.zeros((1, 1), np.int64)
    running = np.empty((len(vms) - start, 5), np.int64)
    count = 0
    for index in range(start, len(vms)):
        demand = demand_of(vms, index)
        if choose(FIRST_FIT, free, demand, (none, none)) == NOWHERE:
            return index - start + 40
        count = release(free, running, count, vms[index, ARRIVAL])
        spot = choose(FIRST_FIT, free, demand, (none, none))
        commit(free, spot, demand[0], demand[1], demand[2])
        running[count, 0] = vms[index, ARRIVAL] + vms[index, LIFETIME]
        running[count, 1] = spot
        running[count, 2] = demand[0]
        running[count, 3] = demand[1]
        running[count, 4] = 1 if demand[2] else 0
        count += 1
    return 0
