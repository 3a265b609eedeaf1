"""The rankings of one fleet, one per kind of key, brought up to date when they are used.

A strategy that nobody asks for costs nothing: its ranking is built at its first use and learns
from the fleet's change log what happened since its last one.
"""

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import Int64Array
from roost.placement.kernels.ranking import (
    ABSENT,
    B_STALE,
    Ranking,
    allocate,
    rebuild,
)

_NO_ROWS = np.zeros(0, np.int64)


class Rankings:
    """Rankings by kind of key, each with the head of the change log it has seen."""

    __slots__ = ("_fleet", "_kept", "_seen")

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._kept: dict[int, Ranking] = {}
        self._seen: dict[int, int] = {}

    def current(self, kind: int, marks: Int64Array) -> tuple[Ranking, Int64Array]:
        """Return a ranking and the hosts that must be refiled in it before it is walked."""
        hosts = self._fleet.hosts
        ranking = self._kept.get(kind)
        if ranking is not None:
            head = self._fleet.changes.head
            seen = self._seen[kind]
            if (
                len(ranking.row_key) == hosts.row_capacity
                and ranking.block_max.shape[1] == hosts.arrays.headroom.shape[1]
                and ranking.block_marks.shape[1] == marks.shape[1]
            ):
                if seen == head:
                    return ranking, _NO_ROWS
                rows = self._fleet.changes.since(seen)
                # Sorting everything anew is cheaper than refiling a quarter of it.
                if rows is not None and len(rows) * 4 <= max(hosts.count, 256):
                    self._seen[kind] = head
                    return ranking, rows
        columns = hosts.arrays.headroom.shape[1]
        if ranking is None or ranking.block_max.shape[1] != columns or (
            len(ranking.row_key),
            ranking.block_marks.shape[1],
        ) != (hosts.row_capacity, marks.shape[1]):
            ranking = allocate(kind, hosts.row_capacity, columns, marks.shape[1])
        rebuild(ranking, hosts.arrays, marks)
        self._kept[kind] = ranking
        self._seen[kind] = self._fleet.changes.head
        return ranking, _NO_ROWS

    def is_current(self, kind: int) -> None:
        """Note that a kernel has kept this ranking up to date itself."""
        self._seen[kind] = self._fleet.changes.head

    def forget(self) -> None:
        """Drop everything, after a kernel was interrupted half way."""
        self._kept.clear()

    def mark_rows(self, rows: Int64Array, word: int, bit: int) -> None:
        """Raise the bounds over hosts that have just been given a mark."""
        flag = _flag(bit)
        for ranking in self._kept.values():
            if word < ranking.block_marks.shape[1]:
                blocks = ranking.row_block[rows[rows < len(ranking.row_block)]]
                ranking.block_marks[blocks[blocks != ABSENT], word] |= flag
                ranking.run_marks[:, :, word] |= flag

    def mark_all(self, word: int, bit: int) -> None:
        """Raise the bounds everywhere for a new selector; searches tighten them again."""
        flag = _flag(bit)
        for ranking in self._kept.values():
            if word < ranking.block_marks.shape[1]:
                ranking.block_marks[:, word] |= flag
                ranking.run_marks[:, :, word] |= flag
                ranking.block[:, B_STALE] = 1


def _flag(bit: int) -> np.int64:
    return np.int64(-(2**63)) if bit == 63 else np.int64(1 << bit)
