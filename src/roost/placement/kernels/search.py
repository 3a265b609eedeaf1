"""The best host by walking a ranking, in exactly the order a full scan would prefer.

Every search returns (row, total) with total = key + penalty, or row -1. Classes, runs and blocks
whose bounds cannot meet the need, lack the selector's mark, or begin behind the best host so far
are skipped; what is left is asked `row_fits`.
"""

from roost.fleet.groups import EMPTY, GroupArrays
from roost.fleet.layout import HostArrays, Int64Array
from roost.placement.kernels.compiling import inlined, int64, kernel, spliced
from roost.placement.kernels.domain_bits import WHERE
from roost.placement.kernels.fit import (
    A_ALL,
    A_CHARGED,
    T_BIT,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_WISH_COUNT,
    T_WISHES,
    T_WORD,
    Ask,
    in_company,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.keys import KEY_FREE, KIND_MASK
from roost.placement.kernels.ranking import (
    ABSENT,
    B_BOUNDS,
    B_SIZE,
    B_STALE,
    CLASSES,
    E_KEY,
    E_ROW,
    FIRST_RUN,
    M_KIND,
    M_LENGTHS,
    P_BLOCK,
    RUN,
    Ranking,
    seek,
    tighten_block,
    tighten_run,
    tighten_top,
)
from roost.placement.kernels.scores import amount_score
from roost.placement.kernels.tally import WEIGHT_ONE

NOWHERE = -1
MOST = 2**62


@inlined
def run_covers(ranking: Ranking, which: int, run: int, ask: Ask, marks_at: int) -> bool:
    """Say whether the bounds of a run, or of a class (run 0), leave room for the request."""
    for position in range(ask.counts[A_ALL] - 1, -1, -1):
        if ranking.runs[which, run, ask.columns[position]] < ask.least[position]:
            return False
    if not in_company(ranking.runs[which, run, marks_at + WHERE], ask):
        return False
    word = ask.terms[T_WORD]
    return word < 0 or (ranking.runs[which, run, marks_at + word] >> ask.terms[T_BIT]) & 1 == 1


@inlined
def block_covers(ranking: Ranking, block: int, ask: Ask, marks_at: int) -> bool:
    """Say whether the bounds of a block leave room for the request."""
    for position in range(ask.counts[A_ALL] - 1, -1, -1):
        if ranking.bounds[block, B_BOUNDS + ask.columns[position]] < ask.least[position]:
            return False
    if not in_company(ranking.bounds[block, B_BOUNDS + marks_at + WHERE], ask):
        return False
    word = ask.terms[T_WORD]
    return (
        word < 0 or (ranking.bounds[block, B_BOUNDS + marks_at + word] >> ask.terms[T_BIT]) & 1 == 1
    )


@kernel
def least_penalty(bounds: Int64Array, block: int, marks_at: int, ask: Ask) -> int:
    """Return what every host of a block is charged at least."""
    total = 0
    for wish in range(ask.terms[T_WISH_COUNT]):
        at = ask.terms[T_WISHES] + 3 * wish
        word = bounds[block, B_BOUNDS + marks_at + ask.lists[at]]
        if (word >> ask.lists[at + 1]) & 1 == 0:
            total += ask.lists[at + 2] * WEIGHT_ONE
    return total


@spliced
def search(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    from_key: int,
    from_row: int,
    last_row: int,
) -> tuple[int, int]:
    """Return the fitting host with the least (key + penalty, host number).

    Hosts filed before (from_key, from_row) are left out, and so are those after `last_row`,
    which only makes sense where the ranking is ordered by number.
    """
    marks_at = hosts.headroom.shape[1]
    charged = ask.counts[A_CHARGED]
    best_row = int64(NOWHERE)
    best = int64(MOST)
    for turn in range(CLASSES):
        # Where the low keys are, so that the best is found early and the rest is passed over.
        which = turn if ranking.meta[M_KIND] & KIND_MASK == KEY_FREE else CLASSES - 1 - turn
        length = ranking.meta[M_LENGTHS + which]
        if length == 0 or not run_covers(ranking, which, 0, ask, marks_at):
            continue
        position = seek(ranking, which, from_key, from_row)
        disappointed = False
        ahead = False
        loose_run = False
        while position < length and not ahead:
            if position % RUN == 0 and not run_covers(
                ranking, which, FIRST_RUN + position // RUN, ask, marks_at
            ):
                position += RUN
                continue
            block = ranking.sequence[which, position]
            first = ranking.entries[block, 0, E_KEY]
            if first > best or (first == best and ranking.entries[block, 0, E_ROW] > best_row):
                break
            if block_covers(ranking, block, ask, marks_at) and (
                charged == 0 or first + least_penalty(ranking.bounds, block, marks_at, ask) <= best
            ):
                fits = False
                for entry in range(ranking.bounds[block, B_SIZE]):
                    key = ranking.entries[block, entry, E_KEY]
                    row = ranking.entries[block, entry, E_ROW]
                    if key > best or (key == best and row > best_row) or row > last_row:
                        ahead = True
                        break
                    if not row_fits(hosts, marks, groups, ask, row):
                        continue
                    fits = True
                    if key < from_key or (key == from_key and row < from_row):
                        continue
                    if charged == 0:
                        best, best_row = key, row
                        ahead = True
                        break
                    total = key + row_penalty(hosts, marks, groups, ask, row)
                    if total < best or (total == best and row < best_row):
                        best, best_row = total, row
                if not fits and not ahead and ranking.bounds[block, B_STALE]:
                    tighten_block(ranking, hosts.headroom, marks, block)
                    loose_run = True
            position += 1
            if loose_run and (position % RUN == 0 or position >= length):
                tighten_run(ranking, which, FIRST_RUN + (position - 1) // RUN, marks_at)
                loose_run = False
                disappointed = True
        if disappointed and not ahead:
            tighten_top(ranking, which, marks_at)
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


@inlined
def better(total: int, row: int, best: int, best_row: int, cursor: int) -> bool:
    """Say whether a host beats the best so far: lower total, then the next number after a cursor.

    With the cursor NOWHERE that is the lower number.
    """
    if best_row == NOWHERE or total < best:
        return True
    if total > best:
        return False
    if (row > cursor) != (best_row > cursor):
        return row > cursor
    return row < best_row


@kernel
def search_listed(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    score: int,
    cursor: int,
) -> tuple[int, int]:
    """Return the best host of the terms' list of candidates."""
    best_row, best = NOWHERE, MOST
    for position in range(ask.terms[T_CANDIDATE_COUNT]):
        row = ask.lists[ask.terms[T_CANDIDATES] + position]
        if ranking.place[row, P_BLOCK] == ABSENT or not row_fits(hosts, marks, groups, ask, row):
            continue
        total = amount_score(score, hosts, ask, row)
        total += row_penalty(hosts, marks, groups, ask, row)
        if better(total, row, best, best_row, cursor):
            best, best_row = total, row
    return best_row, best


@kernel
def search_chain(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    score: int,
    head: int,
    cursor: int,
) -> tuple[int, int]:
    """Return the best host among those on which a group has members."""
    best_row, best = NOWHERE, MOST
    at = head
    while at != EMPTY:
        row = groups.keys[at] & 0xFFFFFFFF
        occupied = groups.counts[at] > 0
        at = groups.chain[at]
        if not occupied or ranking.place[row, P_BLOCK] == ABSENT:
            continue
        if not row_fits(hosts, marks, groups, ask, row):
            continue
        total = amount_score(score, hosts, ask, row)
        total += row_penalty(hosts, marks, groups, ask, row)
        if better(total, row, best, best_row, cursor):
            best, best_row = total, row
    return best_row, best
