"""A ranking: all hosts that take VMs, ordered by key, kept in blocks that know their maxima.

The hosts are first dealt into classes by how much cpu and memory they have free together, in
steps of two, and whether they are short of disk: the many full hosts of a busy fleet lie in
classes that a request passes over at a glance. Each class is a sequence of blocks of up to WIDTH
hosts in (key, host number) order; RUN consecutive blocks share a run, all runs of a class its top.

Block, run and top know the largest headroom and the union of the marks below them. These are
upper bounds: adding a host raises them at once, removing one leaves them (`stale`) until a search
has found a block disappointing and looks again. Searches stay exact either way.

    class 0:  top -> run run ... -> block block block ... -> (key, row) ascending
    class 1:  ...

The arrays are few and wide because every array costs when a kernel is called.
"""

from typing import NamedTuple

import numpy as np

from roost.fleet.layout import CPU, DISK, MEMORY, HostArrays, Int64Array
from roost.placement.kernels.compiling import entry_point, inlined, int64, kernel
from roost.placement.kernels.keys import (
    REFERENCE_CPU,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
    host_key,
)
from roost.placement.kernels.running import running

WIDTH = 64
RUN = 32
LEVELS = 12
CLASSES = 2 * LEVELS
ABSENT = -1
LEAST = -(2**62)

#: Columns of `Ranking.meta`; the number of blocks of each class follows.
M_KIND, M_FREE_BLOCKS, M_HOSTS, M_REBUILDS, M_LENGTHS = range(5)

#: Columns of `Ranking.place`.
P_KEY, P_BLOCK, P_CLASS, P_STAMP = range(4)

#: Columns of `Ranking.entries`.
E_KEY, E_ROW = range(2)

#: First columns of `Ranking.bounds`; the bounds follow.
B_SIZE, B_STALE, B_BOUNDS = range(3)

#: The first run of a class holds its top.
FIRST_RUN = 1


class Ranking(NamedTuple):
    """The arrays of one ranking; "bounds" are headroom columns followed by mark words.

    | field | int64, shape | meaning |
    |---|---|---|
    | meta | [4 + CLASSES] | key kind, free blocks, hosts, rebuilds, blocks per class |
    | place | [hosts, 4] | key it is filed under, block or -1, class, how often it changed |
    | entries | [blocks, WIDTH, 2] | key and row of each entry, ascending |
    | bounds | [blocks, 2 + bounds] | entries, stale, bounds over the block |
    | sequence | [CLASSES + 1, blocks] | blocks of each class in order; last: unused blocks |
    | runs | [CLASSES, 1 + runs, bounds] | bounds over the class and over each run |
    """

    meta: Int64Array
    place: Int64Array
    entries: Int64Array
    bounds: Int64Array
    sequence: Int64Array
    runs: Int64Array


def allocate(kind: int, hosts: int, columns: int, words: int) -> Ranking:
    """Return an empty ranking with room for so many hosts."""
    blocks = 2 * (hosts // WIDTH) + 4 * CLASSES
    place = np.zeros((hosts, 4), np.int64)
    place[:, P_BLOCK] = ABSENT
    meta = np.zeros(M_LENGTHS + CLASSES, np.int64)
    meta[M_KIND] = kind
    return Ranking(
        meta=meta,
        place=place,
        entries=np.zeros((blocks, WIDTH, 2), np.int64),
        bounds=np.zeros((blocks, B_BOUNDS + columns + words), np.int64),
        sequence=np.zeros((CLASSES + 1, blocks), np.int64),
        runs=np.full((CLASSES, FIRST_RUN + blocks // RUN + 1, columns + words), LEAST, np.int64),
    )


@inlined
def class_of(hosts: HostArrays, row: int) -> int:
    """Return the class of a host: how much it has free, and whether its disk is the limit.

    Only speed depends on it, so floating point is good enough.
    """
    together = min(
        hosts.headroom[row, CPU] / REFERENCE_CPU, hosts.headroom[row, MEMORY] / REFERENCE_MEMORY
    )
    level = 0
    bound = 2.0 ** (3 - LEVELS)
    while level < LEVELS - 1 and together >= bound:
        bound *= 2.0
        level += 1
    if hosts.headroom[row, DISK] / REFERENCE_DISK * 8 < together:
        return level + LEVELS
    return level


@inlined
def seek(ranking: Ranking, which: int, key: int, row: int) -> int:
    """Return the position of the last block whose first entry is not after (key, row), or 0."""
    low = 0
    high = ranking.meta[M_LENGTHS + which]
    while low < high:
        middle = (low + high) >> 1
        block = ranking.sequence[which, middle]
        first = ranking.entries[block, 0, E_KEY]
        if first < key or (first == key and ranking.entries[block, 0, E_ROW] <= row):
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


@inlined
def find_in_block(ranking: Ranking, block: int, key: int, row: int) -> int:
    """Return where (key, row) is in a block, or where it belongs."""
    low = 0
    high = ranking.bounds[block, B_SIZE]
    while low < high:
        middle = (low + high) >> 1
        at = ranking.entries[block, middle, E_KEY]
        if at < key or (at == key and ranking.entries[block, middle, E_ROW] < row):
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def raise_block(
    ranking: Ranking, headroom: Int64Array, marks: Int64Array, block: int, row: int
) -> None:
    """Raise one block's bounds to cover a host."""
    columns = headroom.shape[1]
    for column in range(columns):
        ranking.bounds[block, B_BOUNDS + column] = max(
            ranking.bounds[block, B_BOUNDS + column], headroom[row, column]
        )
    for word in range(marks.shape[1]):
        ranking.bounds[block, B_BOUNDS + columns + word] |= marks[row, word]


@inlined
def raise_run(
    ranking: Ranking, headroom: Int64Array, marks: Int64Array, which: int, run: int, row: int
) -> None:
    """Raise one run's bounds to cover a host."""
    columns = headroom.shape[1]
    for column in range(columns):
        ranking.runs[which, run, column] = max(
            ranking.runs[which, run, column], headroom[row, column]
        )
    for word in range(marks.shape[1]):
        ranking.runs[which, run, columns + word] |= marks[row, word]


@inlined
def clear_bounds(ranking: Ranking, block: int, columns: int) -> None:
    """Forget one block's bounds."""
    ranking.bounds[block, B_BOUNDS : B_BOUNDS + columns] = LEAST
    ranking.bounds[block, B_BOUNDS + columns :] = 0


@kernel
def tighten_block(ranking: Ranking, headroom: Int64Array, marks: Int64Array, block: int) -> None:
    """Make one block's bounds exact."""
    clear_bounds(ranking, block, headroom.shape[1])
    for entry in range(ranking.bounds[block, B_SIZE]):
        raise_block(ranking, headroom, marks, block, ranking.entries[block, entry, E_ROW])
    ranking.bounds[block, B_STALE] = 0


@kernel
def tighten_run(ranking: Ranking, which: int, run: int, columns: int) -> None:
    """Recompute one run's bounds from those of its blocks."""
    width = ranking.runs.shape[2]
    ranking.runs[which, run, :columns] = LEAST
    ranking.runs[which, run, columns:] = 0
    start = (run - FIRST_RUN) * RUN
    for position in range(start, min(start + RUN, ranking.meta[M_LENGTHS + which])):
        block = ranking.sequence[which, position]
        for column in range(columns):
            ranking.runs[which, run, column] = max(
                ranking.runs[which, run, column], ranking.bounds[block, B_BOUNDS + column]
            )
        for column in range(columns, width):
            ranking.runs[which, run, column] |= ranking.bounds[block, B_BOUNDS + column]


@kernel
def tighten_top(ranking: Ranking, which: int, columns: int) -> None:
    """Recompute a class's bounds from those of its runs."""
    ranking.runs[which, 0, :columns] = LEAST
    ranking.runs[which, 0, columns:] = 0
    for run in range(FIRST_RUN, FIRST_RUN + runs_in(ranking, which)):
        for column in range(columns):
            ranking.runs[which, 0, column] = max(
                ranking.runs[which, 0, column], ranking.runs[which, run, column]
            )
        for column in range(columns, ranking.runs.shape[2]):
            ranking.runs[which, 0, column] |= ranking.runs[which, run, column]


@inlined
def runs_in(ranking: Ranking, which: int) -> int:
    """Return the number of runs of a class."""
    return (ranking.meta[M_LENGTHS + which] + RUN - 1) // RUN


@kernel
def tighten_runs_from(ranking: Ranking, which: int, position: int, columns: int) -> None:
    """Recompute the bounds of every run from a position on, after blocks have shifted."""
    for run in range(FIRST_RUN + position // RUN, FIRST_RUN + runs_in(ranking, which)):
        tighten_run(ranking, which, run, columns)


@kernel
def new_block(ranking: Ranking, which: int, position: int, columns: int) -> int:
    """Put an unused, empty block into a class at a position."""
    ranking.meta[M_FREE_BLOCKS] -= 1
    block = ranking.sequence[CLASSES, ranking.meta[M_FREE_BLOCKS]]
    for at in range(ranking.meta[M_LENGTHS + which], position, -1):
        ranking.sequence[which, at] = ranking.sequence[which, at - 1]
    ranking.sequence[which, position] = block
    ranking.meta[M_LENGTHS + which] += 1
    ranking.bounds[block, B_SIZE] = 0
    ranking.bounds[block, B_STALE] = 0
    clear_bounds(ranking, block, columns)
    return block


@kernel
def drop_block(ranking: Ranking, which: int, position: int, columns: int) -> None:
    """Take an empty block out of its class."""
    ranking.sequence[CLASSES, ranking.meta[M_FREE_BLOCKS]] = ranking.sequence[which, position]
    ranking.meta[M_FREE_BLOCKS] += 1
    ranking.meta[M_LENGTHS + which] -= 1
    for at in range(position, ranking.meta[M_LENGTHS + which]):
        ranking.sequence[which, at] = ranking.sequence[which, at + 1]
    tighten_runs_from(ranking, which, position, columns)
    if ranking.meta[M_LENGTHS + which] == 0:
        tighten_top(ranking, which, columns)


@kernel
def split(
    ranking: Ranking, headroom: Int64Array, marks: Int64Array, which: int, position: int
) -> None:
    """Move the upper half of a full block into a new one after it."""
    full = ranking.sequence[which, position]
    fresh = new_block(ranking, which, position + 1, headroom.shape[1])
    half = WIDTH // 2
    for entry in range(half, WIDTH):
        ranking.entries[fresh, entry - half, E_KEY] = ranking.entries[full, entry, E_KEY]
        ranking.entries[fresh, entry - half, E_ROW] = ranking.entries[full, entry, E_ROW]
        ranking.place[ranking.entries[full, entry, E_ROW], P_BLOCK] = fresh
    ranking.bounds[full, B_SIZE] = half
    ranking.bounds[fresh, B_SIZE] = WIDTH - half
    tighten_block(ranking, headroom, marks, full)
    tighten_block(ranking, headroom, marks, fresh)
    tighten_runs_from(ranking, which, position, headroom.shape[1])


@inlined
def insert(
    ranking: Ranking,
    headroom: Int64Array,
    marks: Int64Array,
    row: int,
    key: int,
    which: int,
) -> None:
    """File a host that is not in the ranking."""
    if ranking.meta[M_LENGTHS + which] == 0:
        new_block(ranking, which, int64(0), headroom.shape[1])
        tighten_run(ranking, which, int64(FIRST_RUN), headroom.shape[1])
    position = seek(ranking, which, key, row)
    block = ranking.sequence[which, position]
    if ranking.bounds[block, B_SIZE] == WIDTH:
        split(ranking, headroom, marks, which, position)
        position = seek(ranking, which, key, row)
        block = ranking.sequence[which, position]
    at = find_in_block(ranking, block, key, row)
    size = ranking.bounds[block, B_SIZE]
    for entry in range(size, at, -1):
        ranking.entries[block, entry, E_KEY] = ranking.entries[block, entry - 1, E_KEY]
        ranking.entries[block, entry, E_ROW] = ranking.entries[block, entry - 1, E_ROW]
    ranking.entries[block, at, E_KEY] = key
    ranking.entries[block, at, E_ROW] = row
    ranking.bounds[block, B_SIZE] = size + 1
    ranking.place[row, P_KEY] = key
    ranking.place[row, P_BLOCK] = block
    ranking.place[row, P_CLASS] = which
    ranking.meta[M_HOSTS] += 1
    raise_block(ranking, headroom, marks, block, row)
    raise_run(ranking, headroom, marks, which, FIRST_RUN + position // RUN, row)
    raise_run(ranking, headroom, marks, which, int64(0), row)


@inlined
def remove(ranking: Ranking, row: int, columns: int) -> None:
    """Take a host out of the ranking if it is there."""
    block = ranking.place[row, P_BLOCK]
    if block == ABSENT:
        return
    key = ranking.place[row, P_KEY]
    size = ranking.bounds[block, B_SIZE]
    if size == 1:
        which = ranking.place[row, P_CLASS]
        position = seek(ranking, which, key, row)
        drop_block(ranking, which, position, columns)
    for entry in range(find_in_block(ranking, block, key, row), size - 1):
        ranking.entries[block, entry, E_KEY] = ranking.entries[block, entry + 1, E_KEY]
        ranking.entries[block, entry, E_ROW] = ranking.entries[block, entry + 1, E_ROW]
    ranking.bounds[block, B_SIZE] = size - 1
    ranking.bounds[block, B_STALE] = 1
    ranking.place[row, P_BLOCK] = ABSENT
    ranking.meta[M_HOSTS] -= 1


@inlined
def refile(ranking: Ranking, hosts: HostArrays, marks: Int64Array, row: int) -> bool:
    """Bring one host's place in the ranking up to date; False when there is no block left."""
    ranking.place[row, P_STAMP] += 1
    key = host_key(ranking.meta[M_KIND], hosts, row)
    which = class_of(hosts, row)
    block = ranking.place[row, P_BLOCK]
    if (
        block != ABSENT
        and hosts.takes[row]
        and ranking.place[row, P_KEY] == key
        and ranking.place[row, P_CLASS] == which
    ):
        # The place stays, as it nearly always does in a ranking by number. What has shrunk
        # leaves the bounds stale; what has grown would need the run: file it anew.
        grown = False
        for column in range(hosts.headroom.shape[1]):
            grown |= hosts.headroom[row, column] > ranking.bounds[block, B_BOUNDS + column]
        for word in range(marks.shape[1]):
            have = ranking.bounds[block, B_BOUNDS + hosts.headroom.shape[1] + word]
            grown |= marks[row, word] & ~have != 0
        if not grown:
            ranking.bounds[block, B_STALE] = 1
            return True
    remove(ranking, row, hosts.headroom.shape[1])
    if not hosts.takes[row]:
        return True
    if ranking.meta[M_FREE_BLOCKS] <= 1:
        return False
    insert(ranking, hosts.headroom, marks, row, key, which)
    return True


@entry_point
def write_keys(ranking: Ranking, hosts: HostArrays) -> None:
    """Write every host's key, before they are sorted by it."""
    for row in range(len(ranking.place)):
        ranking.place[row, P_STAMP] += 1
        ranking.place[row, P_BLOCK] = ABSENT
        ranking.place[row, P_KEY] = host_key(ranking.meta[M_KIND], hosts, row)


@entry_point
def file_in_order(
    ranking: Ranking, hosts: HostArrays, marks: Int64Array, order: Int64Array
) -> None:
    """File every host anew, in ascending order of key and number, blocks three quarters full."""
    blocks = ranking.sequence.shape[1]
    columns = hosts.headroom.shape[1]
    for block in range(blocks):
        ranking.sequence[CLASSES, block] = blocks - 1 - block
    ranking.meta[M_FREE_BLOCKS] = blocks
    ranking.meta[M_HOSTS] = 0
    ranking.meta[M_REBUILDS] += 1
    ranking.meta[M_LENGTHS:] = 0
    for index in range(len(order)):
        row = order[index]
        which = class_of(hosts, row)
        last = ranking.meta[M_LENGTHS + which] - 1
        if last < 0 or ranking.bounds[ranking.sequence[which, last], B_SIZE] >= WIDTH * 3 // 4:
            last += 1
            new_block(ranking, which, last, columns)
        block = ranking.sequence[which, last]
        size = ranking.bounds[block, B_SIZE]
        ranking.entries[block, size, E_KEY] = ranking.place[row, P_KEY]
        ranking.entries[block, size, E_ROW] = row
        ranking.bounds[block, B_SIZE] = size + 1
        ranking.place[row, P_BLOCK] = block
        ranking.place[row, P_CLASS] = which
        ranking.meta[M_HOSTS] += 1
        raise_block(ranking, hosts.headroom, marks, block, row)
    for which in range(CLASSES):
        tighten_runs_from(ranking, which, int64(0), columns)
        tighten_top(ranking, which, columns)


def rebuild(ranking: Ranking, hosts: HostArrays, marks: Int64Array) -> None:
    """File every host that takes VMs anew."""
    running(write_keys)(ranking, hosts)
    rows = np.flatnonzero(hosts.takes)
    order = rows[np.argsort(ranking.place[rows, P_KEY], kind="stable")]
    running(file_in_order)(ranking, hosts, marks, order)
