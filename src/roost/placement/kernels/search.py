"""The best host by walking a ranking, in exactly the order a full scan would prefer.

Every search returns (row, total) with total = key + penalty, or row -1. Blocks and runs whose
bounds cannot meet the need, lack the selector's mark, or begin behind the best host so far are
skipped; what is left is asked `row_fits`.
"""

import numpy as np

from roost.fleet.groups import EMPTY, HARD, GroupArrays
from roost.fleet.layout import HostArrays, Int64Array
from roost.placement.kernels.compiling import kernel
from roost.placement.kernels.fit import (
    T_BIT,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_WISH_COUNT,
    T_WISHES,
    T_WORD,
    Ask,
    in_sorted,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.keys import host_key
from roost.placement.kernels.ranking import (
    ABSENT,
    B_SIZE,
    B_STALE,
    CLASSES,
    M_KIND,
    RUN,
    Ranking,
    seek,
    tighten_block,
    tighten_run,
)
from roost.placement.kernels.tally import WEIGHT_ONE

NOWHERE = -1
MOST = 2**62

#: Draws before `random` gives up guessing and counts the hosts that fit.
DRAWS = 64


@kernel
def has_penalties(groups: GroupArrays, ask: Ask) -> bool:
    """Say whether any preference or soft group could charge a host."""
    if ask.terms[T_WISH_COUNT] > 0:
        return True
    for position in range(len(ask.groups)):
        if not groups.info[ask.groups[position], HARD]:
            return True
    return False


@kernel
def covers(bounds: Int64Array, marks: Int64Array, ask: Ask) -> bool:
    """Say whether upper bounds leave room for the request."""
    for column in range(len(ask.need)):
        if bounds[column] < ask.need[column]:
            return False
    word = ask.terms[T_WORD]
    return word < 0 or (marks[word] >> ask.terms[T_BIT]) & 1 == 1


@kernel
def least_penalty(marks: Int64Array, ask: Ask) -> int:
    """Return what every host under these marks is charged at least."""
    total = 0
    for wish in range(ask.terms[T_WISH_COUNT]):
        at = ask.terms[T_WISHES] + 3 * wish
        if (marks[ask.lists[at]] >> ask.lists[at + 1]) & 1 == 0:
            total += ask.lists[at + 2] * WEIGHT_ONE
    return total


@kernel
def search_ranked(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    lowest: int,
) -> tuple[int, int]:
    """Return the fitting host with the least (key + penalty, host number).

    The caller knows that no fitting host has a key below `lowest`.
    """
    charged = has_penalties(groups, ask)
    best_row = NOWHERE
    best = MOST
    for which in range(CLASSES):
        length = ranking.length[which]
        if length == 0:
            continue
        position = seek(ranking, which, lowest, NOWHERE)
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
            first = ranking.keys[block, 0]
            if first > best or (first == best and ranking.rows[block, 0] > best_row):
                break
            ahead = False
            if covers(ranking.block_max[block], ranking.block_marks[block], ask) and (
                not charged or first + least_penalty(ranking.block_marks[block], ask) <= best
            ):
                found = False
                for entry in range(ranking.block[block, B_SIZE]):
                    key = ranking.keys[block, entry]
                    row = ranking.rows[block, entry]
                    if key > best or (key == best and row > best_row):
                        ahead = True
                        break
                    if not row_fits(hosts, marks, groups, ask, row):
                        continue
                    found = True
                    if not charged:
                        best, best_row = key, row
                        ahead = True
                        break
                    total = key + row_penalty(hosts, marks, groups, ask, row)
                    if total < best or (total == best and row < best_row):
                        best, best_row = total, row
                if not found and not ahead and ranking.block[block, B_STALE]:
                    tighten_block(ranking, hosts, marks, block)
                    loose = True
            if ahead:
                break
            position += 1
            if loose and (position % RUN == 0 or position == length):
                tighten_run(ranking, which, (position - 1) // RUN)
                loose = False
    return best_row, best


@kernel
def search_rows(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    first_row: int,
    last_row: int,
) -> tuple[int, int]:
    """Return the fitting host of least penalty, the lowest number first, within a range.

    `ranking` is ordered by host number alone.
    """
    charged = has_penalties(groups, ask)
    best_row = NOWHERE
    best = MOST
    length = ranking.length[0]
    if length == 0:
        return best_row, best
    position = seek(ranking, 0, 0, first_row)
    loose = False
    while position < length:
        if position % RUN == 0 and not covers(
            ranking.run_max[0, position // RUN], ranking.run_marks[0, position // RUN], ask
        ):
            position += RUN
            continue
        block = ranking.sequence[0, position]
        if ranking.rows[block, 0] > last_row:
            break
        if covers(ranking.block_max[block], ranking.block_marks[block], ask) and (
            not charged or least_penalty(ranking.block_marks[block], ask) < best
        ):
            found = False
            for entry in range(ranking.block[block, B_SIZE]):
                row = ranking.rows[block, entry]
                if row > last_row:
                    break
                if not row_fits(hosts, marks, groups, ask, row):
                    continue
                found = True
                if row < first_row:
                    continue
                total = row_penalty(hosts, marks, groups, ask, row) if charged else 0
                if total < best:
                    best, best_row = total, row
                    if total == 0:
                        return best_row, best
            if not found and ranking.rows[block, 0] >= first_row and ranking.block[block, B_STALE]:
                tighten_block(ranking, hosts, marks, block)
                loose = True
        position += 1
        if loose and (position % RUN == 0 or position == length):
            tighten_run(ranking, 0, (position - 1) // RUN)
            loose = False
    return best_row, best


@kernel
def search_after(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    cursor: int,
) -> tuple[int, int]:
    """Return the next fitting host after the cursor, going round; a lower penalty wins first."""
    best_row, best = NOWHERE, MOST
    first, last = cursor + 1, np.int64(MOST)
    for _ in range(2):
        row, total = search_rows(hosts, marks, groups, ranking, ask, first, last)
        if row != NOWHERE and total < best:
            best_row, best = row, total
        if best == 0 or cursor < 0:
            break
        first, last = np.int64(0), cursor
    return best_row, best


@kernel
def draw(seed: int, number: int, count: int) -> int:
    """Return the number-th pseudo-random integer below `count` of a seed.

    Multiplications stay below 2^62, so that Python's integers and the machine's agree.
    """
    mixed = number & 0x7FFFFFFF
    for part in range(3):
        mixed ^= (seed >> (31 * part)) & 0x7FFFFFFF
        for _ in range(2):
            mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
            mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & 0x7FFFFFFF
        mixed ^= mixed >> 16
    return (mixed * count) >> 31


@kernel
def search_random(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    seed: int,
) -> tuple[int, int]:
    """Return a uniformly drawn host among the fitting ones of least penalty.

    Guess host numbers first, which is exact and quick while many hosts fit; then count.
    """
    numbers = len(ranking.row_block)
    charged = has_penalties(groups, ask)
    listed = ask.terms[T_CANDIDATE_COUNT]
    if not charged:
        for number in range(DRAWS):
            row = draw(seed, number, numbers)
            if ranking.row_block[row] == ABSENT:
                continue
            if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
                continue
            if row_fits(hosts, marks, groups, ask, row):
                return row, 0
    fitting = 0
    wanted = -1
    best = MOST
    for turn in range(2):
        index = 0
        for position in range(ranking.length[0]):
            block = ranking.sequence[0, position]
            if not covers(ranking.block_max[block], ranking.block_marks[block], ask):
                continue
            for entry in range(ranking.block[block, B_SIZE]):
                row = ranking.rows[block, entry]
                if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
                    continue
                if not row_fits(hosts, marks, groups, ask, row):
                    continue
                total = row_penalty(hosts, marks, groups, ask, row) if charged else 0
                if turn == 0:
                    if total < best:
                        best, fitting = total, 0
                    if total == best:
                        fitting += 1
                elif total == best:
                    if index == wanted:
                        return row, best
                    index += 1
        if fitting == 0:
            return NOWHERE, MOST
        wanted = draw(seed, DRAWS, fitting)
    return NOWHERE, MOST


@kernel
def better(total: int, row: int, best: int, best_row: int, cursor: int, turning: bool) -> bool:
    """Say whether a host beats the best so far: lower total, then lower number (or turn)."""
    if best_row == NOWHERE or total < best:
        return True
    if total > best:
        return False
    if turning and (row > cursor) != (best_row > cursor):
        return row > cursor
    return row < best_row


@kernel
def search_listed(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    cursor: int,
    turning: bool,
) -> tuple[int, int]:
    """Return the best host of the terms' list of candidates."""
    best_row, best = NOWHERE, MOST
    for position in range(ask.terms[T_CANDIDATE_COUNT]):
        row = ask.lists[ask.terms[T_CANDIDATES] + position]
        if ranking.row_block[row] == ABSENT or not row_fits(hosts, marks, groups, ask, row):
            continue
        total = host_key(ranking.meta[M_KIND], hosts, row)
        total += row_penalty(hosts, marks, groups, ask, row)
        if better(total, row, best, best_row, cursor, turning):
            best, best_row = total, row
    return best_row, best


@kernel
def search_chain(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    head: int,
    cursor: int,
    turning: bool,
) -> tuple[int, int]:
    """Return the best host among those on which a group has members."""
    best_row, best = NOWHERE, MOST
    at = head
    while at != EMPTY:
        row = groups.keys[at] & 0xFFFFFFFF
        occupied = groups.counts[at] > 0
        at = groups.chain[at]
        if not occupied or ranking.row_block[row] == ABSENT:
            continue
        if not row_fits(hosts, marks, groups, ask, row):
            continue
        total = host_key(ranking.meta[M_KIND], hosts, row)
        total += row_penalty(hosts, marks, groups, ask, row)
        if better(total, row, best, best_row, cursor, turning):
            best, best_row = total, row
    return best_row, best
