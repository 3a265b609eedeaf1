"""The best host by a score that no ranking is ordered by, passing over blocks that cannot have it.

A score that depends on the request has no order of its own. The bounds of a block still say how
good the score of a host in it can be at most: what is no better than the best host so far is passed
over unseen. The order of the ranking only decides how soon a good host is found.
"""

from typing import NamedTuple

from roost.fleet.groups import GroupArrays
from roost.fleet.layout import CPU, DEVICE_TOTAL, DISK, MEMORY, HostArrays, Int64Array
from roost.placement.kernels.compiling import inlined, int64, kernel
from roost.placement.kernels.fit import A_CHARGED, Ask, asked_devices, row_fits, row_penalty
from roost.placement.kernels.keys import (
    DEVICES_WEIGHT,
    REFERENCE_CPU,
    REFERENCE_DEVICES,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
    SCORE_ONE,
)
from roost.placement.kernels.ranking import (
    B_BOUNDS,
    B_SIZE,
    B_STALE,
    CLASSES,
    E_KEY,
    E_ROW,
    FIRST_RUN,
    M_LENGTHS,
    RUN,
    Ranking,
    tighten_block,
    tighten_run,
    tighten_top,
)
from roost.placement.kernels.scores import HALF_BITS, MOST_HALF, SCORE_DOT, amount_score, half_bits
from roost.placement.kernels.search import MOST, NOWHERE, block_covers, least_penalty, run_covers


class Aim(NamedTuple):
    """What a request adds to the score for each unit that a host has free."""

    dot: bool  # else every host has the same score
    both: int  # for cpu and memory alike
    cpu: int  # for cpu beyond that
    memory: int  # for memory beyond that
    disk: int
    devices: int
    devices_at: int  # the column of free devices


@inlined
def aim_of(score: int, demand: Int64Array, devices: int) -> Aim:
    """Return what to look for; `devices` is in thousandths."""
    cpu = half_bits(demand[CPU], REFERENCE_CPU)
    memory = half_bits(demand[MEMORY], REFERENCE_MEMORY)
    disk = half_bits(demand[DISK], REFERENCE_DISK)
    both = min(cpu, memory)
    return Aim(
        score == SCORE_DOT,
        4 * both,
        4 * (cpu - both),
        4 * (memory - both),
        2 * disk,
        DEVICES_WEIGHT * half_bits(devices, REFERENCE_DEVICES),
        len(demand) + DEVICE_TOTAL,
    )


@inlined
def least_score(aim: Aim, most_free: Int64Array, first_key: int) -> int:
    """Return the least score of hosts with no more free than this, filed from this key on.

    The most free cpu and the most free memory may be those of two hosts; what one host has of both
    together is in the key, so the bounds count only for what is asked of one beyond the other.
    """
    if not aim.dot:
        return SCORE_ONE  # balance, for a request that is not for one cell: first fit
    together = min(-first_key >> HALF_BITS, 2 * MOST_HALF)
    cpu = half_bits(most_free[CPU], REFERENCE_CPU)
    memory = half_bits(most_free[MEMORY], REFERENCE_MEMORY)
    disk = half_bits(most_free[DISK], REFERENCE_DISK)
    amounts = aim.both * together + aim.cpu * cpu + aim.memory * memory + aim.disk * disk
    if aim.devices == 0:
        return -amounts
    return -amounts - aim.devices * half_bits(most_free[aim.devices_at], REFERENCE_DEVICES)


@inlined
def key_at(ranking: Ranking, which: int, position: int) -> int:
    """Return the first key of the block at this position, the lowest from there on."""
    return ranking.entries[ranking.sequence[which, position], 0, E_KEY]


@inlined
def lowest_row(ranking: Ranking, block: int) -> int:
    """Return the lowest host number in a block."""
    last = ranking.bounds[block, B_SIZE] - 1
    lowest = ranking.entries[block, 0, E_ROW]
    if ranking.entries[block, 0, E_KEY] < ranking.entries[block, last, E_KEY]:
        for entry in range(1, last + 1):
            lowest = min(lowest, ranking.entries[block, entry, E_ROW])
    return lowest


@kernel
def search_bounded(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    score: int,
) -> tuple[int, int]:
    """Return the fitting host with the least (score + penalty, host number)."""
    marks_at = hosts.headroom.shape[1]
    aim = aim_of(score, ask.demand, asked_devices(ask))
    charged = ask.counts[A_CHARGED]
    best_row = int64(NOWHERE)
    best = int64(MOST)
    for turn in range(CLASSES):
        which = CLASSES - 1 - turn  # those with the most room first
        length = ranking.meta[M_LENGTHS + which]
        if (
            length == 0
            or not run_covers(ranking, which, 0, ask, marks_at)
            or least_score(aim, ranking.runs[which, 0], key_at(ranking, which, 0)) > best
        ):
            continue
        position = int64(0)
        disappointed = False
        loose_run = False
        while position < length:
            run = FIRST_RUN + position // RUN
            if position % RUN == 0 and (
                not run_covers(ranking, which, run, ask, marks_at)
                or least_score(aim, ranking.runs[which, run], key_at(ranking, which, position))
                > best
            ):
                position += RUN
                continue
            block = ranking.sequence[which, position]
            if block_covers(ranking, block, ask, marks_at):
                first = ranking.entries[block, 0, E_KEY]
                least = least_score(aim, ranking.bounds[block, B_BOUNDS:], first)
                if charged:
                    least += least_penalty(ranking.bounds, block, marks_at, ask)
                if least < best or (least == best and lowest_row(ranking, block) < best_row):
                    before = best_row
                    for entry in range(ranking.bounds[block, B_SIZE]):
                        row = ranking.entries[block, entry, E_ROW]
                        if least == best and row > best_row:
                            continue
                        if not row_fits(hosts, marks, groups, ask, row):
                            continue
                        total = amount_score(score, hosts, ask, row)
                        if charged:
                            total += row_penalty(hosts, marks, groups, ask, row)
                        if total < best or (total == best and row < best_row):
                            best, best_row = total, row
                    if best_row == before and ranking.bounds[block, B_STALE]:
                        tighten_block(ranking, hosts.headroom, marks, block)
                        loose_run = True
            position += 1
            if loose_run and (position % RUN == 0 or position >= length):
                tighten_run(ranking, which, run, marks_at)
                loose_run = False
                disappointed = True
        if disappointed:
            tighten_top(ranking, which, marks_at)
    return best_row, best
