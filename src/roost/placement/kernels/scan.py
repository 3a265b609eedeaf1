"""The best host by looking at every host that could take the VM.

For strategies whose score depends on the request in more than a constant, no order of the hosts
serves all requests. The walk still goes through a ranking, for its block bounds: only hosts in
blocks with enough headroom are looked at.
"""

from roost.fleet.groups import GroupArrays
from roost.fleet.layout import BASE, CPU, DISK, MEMORY, HostArrays, Int64Array
from roost.placement.kernels.compiling import entry_point, kernel
from roost.placement.kernels.fit import (
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    Ask,
    in_sorted,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.fixed_point import RATIO_BITS, ratio
from roost.placement.kernels.fragments import MixArrays, fragment_change
from roost.placement.kernels.keys import (
    KEY_FREE,
    KEY_FREE_DOWN,
    KEY_LOAD,
    REFERENCE_CPU,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
    SCORE_ONE,
    host_key,
)
from roost.placement.kernels.ranking import B_SIZE, B_STALE, CLASSES, RUN, Ranking, tighten_block, tighten_run
from roost.placement.kernels.search import MOST, NOWHERE, covers

#: Scores that need the request. The first five are the keys themselves: a scan by key is the
#: plain baseline that searches are measured against.
SCORE_BALANCE, SCORE_DOT, SCORE_FRAGMENTS = 5, 6, 7

#: Parts of a score: cpu, memory and disk by their columns, then penalties.
PART_PENALTY = BASE
PARTS = BASE + 1


@kernel
def imbalance(hosts: HostArrays, row: int) -> int:
    """Return how unevenly a host's NUMA cells are free: cpu and memory, half of a score each."""
    cells = hosts.cell_free.shape[1]
    spread = 0
    for part in range(2):
        most = -1
        least = MOST
        for cell in range(cells):
            if hosts.cell_capacity[row, cell, part] > 0:
                free = ratio(hosts.cell_free[row, cell, part], hosts.cell_capacity[row, cell, part])
                most = max(most, free)
                least = min(least, free)
        if most >= 0:
            spread += 5 * (most - least)
    return spread


@kernel
def alignment(hosts: HostArrays, demand: Int64Array, row: int) -> int:
    """Return the dot product of demand and free amounts, each over the reference host."""
    cpu = ratio(demand[CPU], REFERENCE_CPU) * (
        ratio(hosts.headroom[row, CPU], REFERENCE_CPU) >> (RATIO_BITS // 2)
    )
    memory = ratio(demand[MEMORY], REFERENCE_MEMORY) * (
        ratio(hosts.headroom[row, MEMORY], REFERENCE_MEMORY) >> (RATIO_BITS // 2)
    )
    disk = ratio(demand[DISK], REFERENCE_DISK) * (
        ratio(hosts.headroom[row, DISK], REFERENCE_DISK) >> (RATIO_BITS // 2)
    )
    return (4 * cpu + 4 * memory + 2 * disk) >> (RATIO_BITS // 2)


@kernel
def scan_score(score: int, hosts: HostArrays, ask: Ask, mix: MixArrays, row: int) -> int:
    """Return one host's score for one request."""
    if score == SCORE_BALANCE:
        return SCORE_ONE - imbalance(hosts, row)
    if score == SCORE_DOT:
        return -alignment(hosts, ask.demand, row)
    if score == SCORE_FRAGMENTS:
        return fragment_change(hosts, ask, mix, row)
    return host_key(score, hosts, row)


@kernel
def score_parts(
    score: int, hosts: HostArrays, demand: Int64Array, row: int, parts: Int64Array
) -> None:
    """Write the addends of a host's score that belong to cpu, memory and disk; others get 0."""
    parts[:] = 0
    whole = (REFERENCE_CPU, REFERENCE_MEMORY, REFERENCE_DISK)
    for resource in range(BASE):
        weight = 2 if resource == DISK else 4
        if score == KEY_LOAD:
            parts[resource] = weight * ratio(
                hosts.committed[row, resource], hosts.capacity[row, resource]
            )
        elif score == KEY_FREE or score == KEY_FREE_DOWN:
            left = ratio(hosts.headroom[row, resource], whole[resource])
            left -= ratio(demand[resource], whole[resource])
            parts[resource] = weight * (left if score == KEY_FREE else -left)


@kernel
def scan(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    score: int,
    mix: MixArrays,
) -> tuple[int, int]:
    """Return the fitting host with the least (score + penalty, host number)."""
    best_row, best = NOWHERE, MOST
    listed = ask.terms[T_CANDIDATE_COUNT]
    for which in range(CLASSES):
        length = ranking.length[which]
        position = 0
        loose = False
        while position < length:
            if position % RUN == 0 and not covers(
                ranking.run_max[which, position // RUN],
                ranking.run_marks[which, position // RUN],
                ask,
            ):
                position += RUN
                continue
            block = ranking.sequence[which, position]
            if covers(ranking.block_max[block], ranking.block_marks[block], ask):
                found = False
                for entry in range(ranking.block[block, B_SIZE]):
                    row = ranking.rows[block, entry]
                    if not row_fits(hosts, marks, groups, ask, row):
                        continue
                    found = True
                    if listed >= 0 and not in_sorted(
                        ask.lists, ask.terms[T_CANDIDATES], listed, row
                    ):
                        continue
                    total = scan_score(score, hosts, ask, mix, row)
                    total += row_penalty(hosts, marks, groups, ask, row)
                    if total < best or (total == best and row < best_row):
                        best, best_row = total, row
                if not found and ranking.block[block, B_STALE]:
                    tighten_block(ranking, hosts, marks, block)
                    loose = True
            position += 1
            if loose and (position % RUN == 0 or position == length):
                tighten_run(ranking, which, (position - 1) // RUN)
                loose = False
    return best_row, best


@entry_point
def plain_scan(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ask: Ask,
    score: int,
    mix: MixArrays,
    count: int,
) -> tuple[int, int]:
    """Return the same as `scan` and `search_ranked`, from every host without any index.

    The baseline of the benchmarks and the referee of the tests.
    """
    best_row, best = NOWHERE, MOST
    listed = ask.terms[T_CANDIDATE_COUNT]
    for row in range(count):
        if not hosts.takes[row] or not row_fits(hosts, marks, groups, ask, row):
            continue
        if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
            continue
        total = scan_score(score, hosts, ask, mix, row)
        total += row_penalty(hosts, marks, groups, ask, row)
        if total < best:
            best, best_row = total, row
    return best_row, best
