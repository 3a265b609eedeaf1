"""What agents have measured on hosts, brought to the fleet that rules read: use and pressure.

Readings reach the store of series from every process, so every process reads the newest of each
host from there, and only while some rule asks or pressure is bounded. A reading that is older than
five minutes by its host's clock is none, and so is every one while the store cannot be used: what
is not known is missing, and a rule that reads it does not hold. It is judged at the decision; the
commit compares nothing of it.
"""

import logging
from collections.abc import Mapping

from roost.analysis.store import SeriesStore
from roost.base.clock import Clock
from roost.base.errors import SeriesUnavailable
from roost.control.memory.roster import Roster
from roost.model.hosts import PRESSURES
from roost.model.series import Reading

log = logging.getLogger("roost.rules")

#: How often this process reads what was measured, while a rule asks.
LOOK_S = 10.0
#: How old a reading may be.
MOST_AGE_MS = 300_000


class MeasuredHosts:
    """Keeps what hosts use, and their pressure, in the fleet as long as somebody reads it."""

    def __init__(
        self,
        series: SeriesStore,
        roster: Roster,
        clock: Clock,
        bounds: Mapping[str, float] | None = None,
    ) -> None:
        self._series, self._roster, self._clock = series, roster, clock
        self._bounds = bounds or {}  # on pressure, in percent

    async def look(self) -> None:
        """Bring the newest readings to the fleet if some rule or bound reads them."""
        if self._bounds or self._roster.rulebook.reads_measured:
            await self.refresh()
            if self._bounds and not self._roster.fleet.hosts.bounds_pressure:
                # Not before: until it was read, every host would be above its bound.
                self._roster.fleet.set_pressure_bounds(self._bounds)
            self._roster.room += 1  # a host may be less busy than it was

    async def refresh(self) -> None:
        """Bring the newest readings to the fleet; of a host without one nothing is known."""
        now = self._clock.wall_ms()
        try:
            found = await self._series.newest_of("host", now - MOST_AGE_MS, now)
        except SeriesUnavailable as error:
            log.warning("what hosts use is not known to rules: %s", error.message)
            found = {}
        for entry in self._roster.hosts.values():
            used, pressure = _measured(found.get(entry.name))
            self._roster.fleet.set_measured(entry.name, used, pressure)


def _measured(reading: Reading | None) -> tuple[dict[str, int], dict[str, float]]:
    """Return use and pressure of one reading; what it lacks is left out."""
    if reading is None:
        return {}, {}
    figures = reading.figures
    used = {name: round(figures[of]) for name, of in _AMOUNTS.items() if of in figures}
    named = {name: figures.get(f"psi_{name}_some_avg10") for name in PRESSURES}
    return used, {name: value for name, value in named.items() if value is not None}


_AMOUNTS = {"cpu": "cpu_milli", "memory": "memory_bytes", "disk": "disk_bytes"}
