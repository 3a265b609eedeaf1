"""Delete what parts keep only for a while, and fold old events, in one process for all."""

from collections.abc import Callable, Sequence

from roost.base.clock import Clock
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.upkeep.base import EventsKept, fold_old
from roost.ledger.upkeep.retention import Kept, Purged, purge, surplus
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

#: Rows of one table that one transaction deletes, so that nobody waits long for it.
_PIECE = 2000
_MOST_PIECES = 100


class Purge(Part):
    """Deletes piece by piece, table after table."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        clock: Clock,
        kept: Callable[[], Sequence[Kept]],
        singleton: Singleton,
        *,
        events: EventsKept | None = None,
        look_s: float = 300.0,
        piece: int = _PIECE,
    ) -> None:
        self._store, self._clock, self._kept, self.singleton = store, clock, kept, singleton
        self._events, self.look_s, self._piece = events or EventsKept(), look_s, piece

    async def look(self) -> None:
        """Purge old rows until none is left, or enough for now."""
        for kept in self._kept():
            for _ in range(_MOST_PIECES):
                if not (await self._purge(kept)).more:
                    break
        for _ in range(_MOST_PIECES):
            if not (await self._fold()).more:
                break

    async def _purge(self, kept: Kept) -> Purged:
        now, piece = self._clock.wall_ms(), self._piece
        seen = await self._store.read(lambda connection: surplus(connection, kept, piece))
        return await self._store.write(lambda tx: purge(tx, kept, now, piece, seen))

    async def _fold(self) -> Purged:
        now, piece = self._clock.wall_ms(), self._piece

        def fold(tx: Tx) -> Purged:
            if release_before_may_be_here(tx.connection):
                return Purged(0, more=False)  # it would take hosts that heard of them for ahead
            return fold_old(tx, self._events, now, piece)

        return await self._store.write(fold)
