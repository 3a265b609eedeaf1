"""A ranking: all hosts that take VMs, ordered by key, kept in blocks that know their maxima.

The hosts are first dealt into a few classes by the direction of what they have free (cpu-poor,
memory-poor, disk-poor, balanced): inside a class a block's largest headroom is close to that of
each of its hosts, so a block that could take a VM nearly always does. Each class is a sequence of
blocks of up to WIDTH hosts in (key, host number) order; RUN consecutive blocks share a run
maximum, so a search skips thousands of hosts at a time.

Maxima are upper bounds: adding a host raises them at once, removing one leaves them (`stale`)
until a search has found a block disappointing and looks again. Searches stay exact either way.

    class 0:  [run: max, marks] -> block block block ...   (key, row) ascending
    class 1:  ...
"""

from typing import NamedTuple

import numpy as np

from roost.fleet.layout import CPU, DISK, MEMORY, HostArrays, Int64Array
from roost.placement.kernels.compiling import entry_point, kernel
from roost.placement.kernels.keys import (
    KEY_POSITION,
    REFERENCE_CPU,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
    host_key,
)

WIDTH = 64
RUN = 32
CLASSES = 15
ABSENT = -1

#: Columns of `Ranking.meta`.
M_KIND, M_FREE_BLOCKS, M_HOSTS, M_REBUILDS = range(4)

#: Columns of `Ranking.block`.
B_SIZE, B_STALE = range(2)


class Ranking(NamedTuple):
    """The arrays of one ranking.

    | field | dtype, shape | meaning |
    |---|---|---|
    | meta | int64 [4] | key kind, free blocks, hosts, rebuilds |
    | row_key | int64 [hosts] | key under which the host is filed |
    | row_block | int64 [hosts] | its block, or -1 |
    | row_class | int64 [hosts] | its class |
    | keys, rows | int64, int64 [blocks, WIDTH] | the entries of each block, ascending |
    | block | int64 [blocks, 2] | entries, stale maxima |
    | block_max, block_marks | int64 [blocks, columns / words] | bounds over the block |
    | free_blocks | int64 [blocks] | stack of unused blocks |
    | length | int64 [CLASSES] | blocks in each class |
    | sequence | int64 [CLASSES, blocks] | the blocks of each class in order |
    | run_max, run_marks | int64 [CLASSES, runs, columns / words] | bounds over RUN blocks |
    """

    meta: Int64Array
    row_key: Int64Array
    row_block: Int64Array
    row_class: Int64Array
    keys: Int64Array
    rows: Int64Array
    block: Int64Array
    block_max: Int64Array
    block_marks: Int64Array
    free_blocks: Int64Array
    length: Int64Array
    sequence: Int64Array
    run_max: Int64Array
    run_marks: Int64Array


def allocate(kind: int, hosts: int, columns: int, words: int) -> Ranking:
    """Return an empty ranking with room for so many hosts."""
    blocks = 4 * (hosts // WIDTH) + 4 * CLASSES
    runs = blocks // RUN + 1
    meta = np.zeros(4, np.int64)
    meta[M_KIND] = kind
    return Ranking(
        meta=meta,
        row_key=np.zeros(hosts, np.int64),
        row_block=np.full(hosts, ABSENT, np.int64),
        row_class=np.zeros(hosts, np.int64),
        keys=np.zeros((blocks, WIDTH), np.int64),
        rows=np.zeros((blocks, WIDTH), np.int64),
        block=np.zeros((blocks, 2), np.int64),
        block_max=np.zeros((blocks, columns), np.int64),
        block_marks=np.zeros((blocks, words), np.int64),
        free_blocks=np.zeros(blocks, np.int64),
        length=np.zeros(CLASSES, np.int64),
        sequence=np.zeros((CLASSES, blocks), np.int64),
        run_max=np.zeros((CLASSES, runs, columns), np.int64),
        run_marks=np.zeros((CLASSES, runs, words), np.int64),
    )


@kernel
def direction(hosts: HostArrays, row: int) -> int:
    """Return the class of a host: which of cpu, memory and disk it is short of, and how much.

    Only speed depends on it, so floating point is good enough.
    """
    cpu = hosts.headroom[row, CPU] / REFERENCE_CPU
    memory = hosts.headroom[row, MEMORY] / REFERENCE_MEMORY
    disk = hosts.headroom[row, DISK] / REFERENCE_DISK
    if cpu * 4 < memory:
        column = 0
    elif cpu * 1.5 < memory:
        column = 1
    elif cpu <= memory * 1.5:
        column = 2
    elif cpu <= memory * 4:
        column = 3
    else:
        column = 4
    scarcer = min(cpu, memory)
    if disk * 4 < scarcer:
        return column
    return column + 5 if disk < scarcer else column + 10


@kernel
def seek(ranking: Ranking, which: int, key: int, row: int) -> int:
    """Return the position of the last block whose first entry is not after (key, row), or 0."""
    low, high = 0, ranking.length[which]
    while low < high:
        middle = (low + high) // 2
        block = ranking.sequence[which, middle]
        first = ranking.keys[block, 0]
        if first < key or (first == key and ranking.rows[block, 0] <= row):
            low = middle + 1
        else:
            high = middle
    return max(0, low - 1)


@kernel
def tighten_block(ranking: Ranking, hosts: HostArrays, marks: Int64Array, block: int) -> None:
    """Make one block's bounds exact."""
    ranking.block_max[block, :] = -(2**62)
    ranking.block_marks[block, :] = 0
    for entry in range(ranking.block[block, B_SIZE]):
        raise_block(ranking, hosts, marks, block, ranking.rows[block, entry])
    ranking.block[block, B_STALE] = 0


@kernel
def raise_block(
    ranking: Ranking, hosts: HostArrays, marks: Int64Array, block: int, row: int
) -> None:
    """Raise one block's bounds to cover a host."""
    for column in range(ranking.block_max.shape[1]):
        if hosts.headroom[row, column] > ranking.block_max[block, column]:
            ranking.block_max[block, column] = hosts.headroom[row, column]
    for word in range(ranking.block_marks.shape[1]):
        ranking.block_marks[block, word] |= marks[row, word]


@kernel
def raise_run(
    ranking: Ranking, hosts: HostArrays, marks: Int64Array, which: int, position: int, row: int
) -> None:
    """Raise the bounds of the run at a position to cover a host."""
    run = position // RUN
    for column in range(ranking.run_max.shape[2]):
        if hosts.headroom[row, column] > ranking.run_max[which, run, column]:
            ranking.run_max[which, run, column] = hosts.headroom[row, column]
    for word in range(ranking.run_marks.shape[2]):
        ranking.run_marks[which, run, word] |= marks[row, word]


@kernel
def tighten_run(ranking: Ranking, which: int, run: int) -> None:
    """Recompute one run's bounds from those of its blocks."""
    ranking.run_max[which, run, :] = -(2**62)
    ranking.run_marks[which, run, :] = 0
    for position in range(run * RUN, min((run + 1) * RUN, ranking.length[which])):
        block = ranking.sequence[which, position]
        for column in range(ranking.run_max.shape[2]):
            if ranking.block_max[block, column] > ranking.run_max[which, run, column]:
                ranking.run_max[which, run, column] = ranking.block_max[block, column]
        for word in range(ranking.run_marks.shape[2]):
            ranking.run_marks[which, run, word] |= ranking.block_marks[block, word]


@kernel
def tighten_runs_from(ranking: Ranking, which: int, position: int) -> None:
    """Recompute the bounds of every run from a position on, after blocks have shifted."""
    for run in range(position // RUN, (ranking.length[which] + RUN - 1) // RUN):
        tighten_run(ranking, which, run)


@kernel
def new_block(ranking: Ranking, which: int, position: int) -> int:
    """Put an unused block into a class at a position; the caller fills it."""
    ranking.meta[M_FREE_BLOCKS] -= 1
    block = ranking.free_blocks[ranking.meta[M_FREE_BLOCKS]]
    for at in range(ranking.length[which], position, -1):
        ranking.sequence[which, at] = ranking.sequence[which, at - 1]
    ranking.sequence[which, position] = block
    ranking.length[which] += 1
    ranking.block[block, B_SIZE] = 0
    ranking.block[block, B_STALE] = 0
    return block


@kernel
def drop_block(ranking: Ranking, which: int, position: int) -> None:
    """Take an empty block out of its class."""
    block = ranking.sequence[which, position]
    for at in range(position, ranking.length[which] - 1):
        ranking.sequence[which, at] = ranking.sequence[which, at + 1]
    ranking.length[which] -= 1
    ranking.free_blocks[ranking.meta[M_FREE_BLOCKS]] = block
    ranking.meta[M_FREE_BLOCKS] += 1


@kernel
def split(
    ranking: Ranking, hosts: HostArrays, marks: Int64Array, which: int, position: int
) -> None:
    """Move the upper half of a full block into a new one after it."""
    full = ranking.sequence[which, position]
    fresh = new_block(ranking, which, position + 1)
    half = WIDTH // 2
    for entry in range(half, WIDTH):
        row = ranking.rows[full, entry]
        ranking.keys[fresh, entry - half] = ranking.keys[full, entry]
        ranking.rows[fresh, entry - half] = row
        ranking.row_block[row] = fresh
    ranking.block[full, B_SIZE] = half
    ranking.block[fresh, B_SIZE] = WIDTH - half
    tighten_block(ranking, hosts, marks, full)
    tighten_block(ranking, hosts, marks, fresh)
    tighten_runs_from(ranking, which, position)


@kernel
def insert(ranking: Ranking, hosts: HostArrays, marks: Int64Array, row: int) -> None:
    """File a host that is not in the ranking."""
    key = host_key(ranking.meta[M_KIND], hosts, row)
    which = np.int64(0) if ranking.meta[M_KIND] == KEY_POSITION else direction(hosts, row)
    if ranking.length[which] == 0:
        new_block(ranking, which, np.int64(0))
        block = ranking.sequence[which, 0]
        ranking.block_max[block, :] = -(2**62)
        ranking.block_marks[block, :] = 0
        tighten_run(ranking, which, np.int64(0))
    position = seek(ranking, which, key, row)
    block = ranking.sequence[which, position]
    if ranking.block[block, B_SIZE] == WIDTH:
        split(ranking, hosts, marks, which, position)
        after = ranking.sequence[which, position + 1]
        first = ranking.keys[after, 0]
        if first < key or (first == key and ranking.rows[after, 0] < row):
            position += 1
            block = after
    size = ranking.block[block, B_SIZE]
    at = size
    while at > 0 and (
        ranking.keys[block, at - 1] > key
        or (ranking.keys[block, at - 1] == key and ranking.rows[block, at - 1] > row)
    ):
        ranking.keys[block, at] = ranking.keys[block, at - 1]
        ranking.rows[block, at] = ranking.rows[block, at - 1]
        at -= 1
    ranking.keys[block, at] = key
    ranking.rows[block, at] = row
    ranking.block[block, B_SIZE] = size + 1
    ranking.row_key[row] = key
    ranking.row_block[row] = block
    ranking.row_class[row] = which
    ranking.meta[M_HOSTS] += 1
    raise_block(ranking, hosts, marks, block, row)
    raise_run(ranking, hosts, marks, which, position, row)


@kernel
def remove(ranking: Ranking, row: int) -> None:
    """Take a host out of the ranking if it is there."""
    block = ranking.row_block[row]
    if block == ABSENT:
        return
    size = ranking.block[block, B_SIZE]
    if size == 1:
        which = ranking.row_class[row]
        position = seek(ranking, which, ranking.row_key[row], row)
        drop_block(ranking, which, position)
        tighten_runs_from(ranking, which, position)
    at = 0
    while ranking.rows[block, at] != row:
        at += 1
    for entry in range(at, size - 1):
        ranking.keys[block, entry] = ranking.keys[block, entry + 1]
        ranking.rows[block, entry] = ranking.rows[block, entry + 1]
    ranking.block[block, B_SIZE] = size - 1
    ranking.block[block, B_STALE] = 1
    ranking.row_block[row] = ABSENT
    ranking.meta[M_HOSTS] -= 1


@kernel
def refile(ranking: Ranking, hosts: HostArrays, marks: Int64Array, row: int) -> None:
    """Bring one host's place in the ranking up to date."""
    remove(ranking, row)
    if not hosts.takes[row]:
        return
    if ranking.meta[M_FREE_BLOCKS] == 0:
        rebuild(ranking, hosts, marks)  # files this host too
        return
    insert(ranking, hosts, marks, row)


@kernel
def refile_rows(
    ranking: Ranking, hosts: HostArrays, marks: Int64Array, rows: Int64Array
) -> None:
    """Bring several hosts' places up to date."""
    for position in range(len(rows)):
        refile(ranking, hosts, marks, rows[position])


@entry_point
def rebuild(ranking: Ranking, hosts: HostArrays, marks: Int64Array) -> None:
    """File every host anew, blocks three quarters full."""
    blocks = len(ranking.free_blocks)
    for block in range(blocks):
        ranking.free_blocks[block] = blocks - 1 - block
    ranking.meta[M_FREE_BLOCKS] = blocks
    ranking.meta[M_HOSTS] = 0
    ranking.meta[M_REBUILDS] += 1
    ranking.length[:] = 0
    kind = ranking.meta[M_KIND]
    for row in range(len(ranking.row_block)):
        ranking.row_block[row] = ABSENT
        ranking.row_key[row] = host_key(kind, hosts, row) if hosts.takes[row] else 0
    order = np.argsort(ranking.row_key, kind="mergesort")
    fill = WIDTH * 3 // 4
    for index in range(len(order)):
        row = order[index]
        if not hosts.takes[row]:
            continue
        which = np.int64(0) if kind == KEY_POSITION else direction(hosts, row)
        last = ranking.length[which] - 1
        if last < 0 or ranking.block[ranking.sequence[which, last], B_SIZE] >= fill:
            last += 1
            block = new_block(ranking, which, last)
            ranking.block_max[block, :] = -(2**62)
            ranking.block_marks[block, :] = 0
        block = ranking.sequence[which, last]
        size = ranking.block[block, B_SIZE]
        ranking.keys[block, size] = ranking.row_key[row]
        ranking.rows[block, size] = row
        ranking.block[block, B_SIZE] = size + 1
        ranking.row_block[row] = block
        ranking.row_class[row] = which
        ranking.meta[M_HOSTS] += 1
        raise_block(ranking, hosts, marks, block, row)
    for which in range(CLASSES):
        tighten_runs_from(ranking, which, np.int64(0))
