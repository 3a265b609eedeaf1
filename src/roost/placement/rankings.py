"""The rankings of one fleet, one per kind of key, brought up to date when they are used.

A strategy that nobody asks for costs nothing: its ranking is built at its first use and learns
from the fleet's change log what happened since its last one.
"""

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import Int64Array
from roost.placement.kernels.ranking import (
    ABSENT,
    B_BOUNDS,
    B_STALE,
    P_BLOCK,
    Ranking,
    allocate,
    rebuild,
)

_NO_ROWS = np.zeros(0, np.int64)


class Rankings:
    """Rankings by kind of key, each with the head of the change log it has seen."""

    __slots__ = ("_columns", "_fleet", "_kept", "_seen")

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._kept: dict[int, Ranking] = {}
        self._seen: dict[int, int] = {}
        self._columns = 0  # headroom columns; the marks follow them in the bounds

    def current(self, kind: int, marks: Int64Array) -> tuple[Ranking, Int64Array]:
        """Return a ranking and the hosts that must be refiled in it before it is walked."""
        hosts, changes = self._fleet.hosts, self._fleet.changes
        columns, words = hosts.arrays.headroom.shape[1], marks.shape[1]
        ranking = self._kept.get(kind)
        if ranking is not None and (
            len(ranking.place) == hosts.row_capacity
            and ranking.runs.shape[2] == columns + words
            and self._columns == columns
        ):
            seen = self._seen[kind]
            if seen == changes.head:
                return ranking, _NO_ROWS
            rows = changes.since(seen)
            # Sorting everything anew is cheaper than refiling a quarter of it.
            if rows is not None and len(rows) * 4 <= max(hosts.count, 256):
                self._seen[kind] = changes.head
                return ranking, rows
        else:
            if self._columns != columns:  # bounds of every ranking have another meaning now
                self._kept.clear()
                self._columns = columns
            ranking = allocate(kind, hosts.row_capacity, columns, words)
        rebuild(ranking, hosts.arrays, marks)
        self._kept[kind] = ranking
        self._seen[kind] = changes.head
        return ranking, _NO_ROWS

    def is_current(self, kind: int) -> None:
        """Note that a kernel has kept this ranking up to date itself."""
        self._seen[kind] = self._fleet.changes.head

    def mark_rows(self, rows: Int64Array, word: int, bit: int) -> None:
        """Raise the bounds over hosts that have just been given a mark."""
        flag = np.int64(1 << bit)
        column = self._columns + word
        for ranking in self._kept.values():
            if column < ranking.runs.shape[2]:
                blocks = ranking.place[rows[rows < len(ranking.place)], P_BLOCK]
                ranking.bounds[blocks[blocks != ABSENT], B_BOUNDS + column] |= flag
                ranking.runs[:, :, column] |= flag

    def mark_all(self, word: int, bit: int) -> None:
        """Raise the bounds everywhere for a new selector; searches tighten them again."""
        flag = np.int64(1 << bit)
        column = self._columns + word
        for ranking in self._kept.values():
            if column < ranking.runs.shape[2]:
                ranking.bounds[:, B_BOUNDS + column] |= flag
                ranking.bounds[:, B_STALE] = 1
                ranking.runs[:, :, column] |= flag
