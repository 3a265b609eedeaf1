"""Whoever waits for an answer, and may hang up before it comes.

Nothing that changes the ledger goes by that: a change whose client has left is kept or not like any
other. What is only worked out for an answer, and keeps others waiting, ends when its asker leaves.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Asker:
    """One client, from its request on; told by its connection that it has left."""

    __slots__ = ("_ends", "has_left")

    def __init__(self) -> None:
        self.has_left = False
        self._ends: list[Callable[[], None]] = []

    def leave(self) -> None:
        """Note that it has hung up, and end what is worked out for it."""
        self.has_left = True
        for end in tuple(self._ends):
            end()

    @contextmanager
    def ends(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if it leaves while this lasts."""
        self._ends.append(end)
        try:
            yield
        finally:
            self._ends.remove(end)
