"""The store of series is kept in order by one process for all: filed, rolled up, thinned by age.

Two that do it at once harm nobody: the store refuses what is made of batches that are gone. The
lease only keeps the work from being done twice.
"""

import logging

from roost.analysis.store import SeriesStore
from roost.base.clock import Clock
from roost.base.errors import SeriesUnavailable
from roost.model.series import Kept
from roost.parts.part import Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.series")

#: How often it is looked for work, and for how long it is done at one look: leases are renewed
#: between two looks.
LOOK_S, _MOST_S = 5.0, 1.0


class KeptSeries(Part):
    """Files readings and deletes old ones, piece by piece."""

    singleton: Singleton
    look_s = LOOK_S

    def __init__(self, store: SeriesStore, clock: Clock, singleton: Singleton, kept: Kept) -> None:
        self._store, self._clock, self.singleton, self._kept = store, clock, singleton, kept
        self._trouble = ""

    async def look(self) -> None:
        """Tidy the store until nothing is left to do, or enough for now."""
        until = self._clock.monotonic() + _MOST_S
        try:
            while await self._store.tidy(self._clock.wall_ms(), self._kept):
                if self._clock.monotonic() >= until:
                    break
        except SeriesUnavailable as error:
            if error.message != self._trouble:  # once, not at every look
                log.warning("series are not filed: %s", error.message)
            self._trouble = error.message
        else:
            self._trouble = ""
