"""Turns of hosts with what they have said and is not written yet: who says most waits longest."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """What hosts have said and is not written yet; they take turns, however much one has said.

    Bounded by host and in all: while the database is away, memory does not grow with the number of
    hosts either. The oldest of those who have said most go.
    """

    def __init__(self, most: int, most_in_all: int) -> None:
        self._most, self._most_in_all = most, most_in_all
        self._count = 0
        self._waiting: dict[int, list[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, host: int, said: list[T]) -> None:
        """Add what a host has said."""
        if said:
            waiting = self._waiting.setdefault(host, [])
            before = len(waiting)
            waiting += said
            del waiting[: -self._most]
            self._bound(len(waiting) - before)

    def put_back(
        self, host: int, said: list[T], shorten: Callable[[list[T]], list[T]] | None = None
    ) -> None:
        """Put what could not be written before what the host has said since."""
        since = self._waiting.get(host, [])
        waiting = said + since
        kept = self._waiting[host] = (shorten(waiting) if shorten else waiting)[-self._most :]
        self._bound(len(kept) - len(since))

    def take(self, most: int) -> list[T]:
        """Take about so many, an equal share of every host's; who has more comes last next time."""
        taken: list[T] = []
        share = max(1, most // max(1, len(self._waiting)))
        for host in list(self._waiting):
            if len(taken) >= most:
                break
            waiting = self._waiting.pop(host)
            taken += waiting[:share]
            if len(waiting) > share:
                self._waiting[host] = waiting[share:]
        self._count -= len(taken)
        return taken

    def _bound(self, more: int) -> None:
        """Count what came; of too much, drop the oldest of the longest queues, to one length."""
        self._count += more
        if self._count <= self._most_in_all:
            return
        # Some more than must go: to look at every host each time would cost more than it saves.
        left, queues = self._most_in_all * 7 // 8, len(self._waiting)
        most = 0
        for waiting in sorted(self._waiting.values(), key=len):
            most = left // queues
            if len(waiting) > most:
                break
            left, queues = left - len(waiting), queues - 1
        for host, waiting in list(self._waiting.items()):
            del waiting[: max(0, len(waiting) - most)]
            if not waiting:
                del self._waiting[host]
        self._count = sum(map(len, self._waiting.values()))
