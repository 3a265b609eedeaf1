"""Delete what is kept only for a while, too old or more than wanted, in one process for all."""

from roost.base.clock import Clock
from roost.ledger.retention import RetentionSettings, purge, surplus
from roost.ledger.store import Store
from roost.parts.part import Part
from roost.parts.singleton import Singleton

_PURGE_S = 300.0
_MOST_PIECES = 100


class Purge(Part):
    """Deletes piece by piece, so that nobody waits long for it."""

    singleton: Singleton
    look_s = _PURGE_S

    def __init__(
        self, store: Store, clock: Clock, keep: RetentionSettings, singleton: Singleton
    ) -> None:
        self._store, self._clock, self._keep, self.singleton = store, clock, keep, singleton

    async def look(self) -> None:
        """Delete until nothing is left, or enough for now."""
        keep = self._keep
        for _ in range(_MOST_PIECES):
            now = self._clock.wall_ms()
            seen = await self._store.read(lambda connection: surplus(connection, keep))
            gone = await self._store.write(lambda tx: purge(tx, now, keep, seen))  # noqa: B023
            if not gone.more:
                return
