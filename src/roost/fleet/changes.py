"""A bounded log of which hosts changed, for those who keep something derived from the fleet.

A reader remembers the head it has seen and asks for the rows since; when more happened than the
log holds it is told so (None) and rebuilds. Writers therefore never wait for readers, and nobody
registers with the fleet.
"""

import numpy as np

from roost.fleet.layout import Int64Array


class ChangeLog:
    """The last `capacity` changed rows, and how many there ever were."""

    __slots__ = ("_rows", "head")

    def __init__(self, capacity: int = 8192) -> None:
        self._rows = np.zeros(capacity, np.int64)
        self.head = 0

    def add(self, row: int) -> None:
        """Log one changed host row."""
        self._rows[self.head % len(self._rows)] = row
        self.head += 1

    def add_many(self, rows: Int64Array) -> None:
        """Log many changed host rows; more than the log holds makes every reader rebuild."""
        capacity = len(self._rows)
        tail = rows[-capacity:]
        start = self.head + len(rows) - len(tail)
        self._rows[(start + np.arange(len(tail))) % capacity] = tail
        self.head += len(rows)

    def since(self, seen: int) -> Int64Array | None:
        """Return the distinct rows changed since, or None if the log does not reach back."""
        missed = self.head - seen
        if missed > len(self._rows):
            return None
        if missed == 1:
            at = seen % len(self._rows)
            return self._rows[at : at + 1]
        return np.unique(self._rows[np.arange(seen, self.head) % len(self._rows)])
