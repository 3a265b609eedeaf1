"""What agents have measured on hosts, brought to the fleet that rules read: use and pressure.

Samples reach the ledger from every process, so every process reads the newest of each host from
there, and only while some rule asks. A reading that is older than five minutes by its host's clock
is none: what is not known is missing, and a rule that reads it does not hold. It is judged at the
decision; the commit compares nothing of it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from roost.base.clock import Clock
from roost.control.memory.roster import Roster
from roost.ledger.store import Store
from roost.ledger.tables import hosts, samples
from roost.model.hosts import PRESSURES

#: How often this process reads what was measured, while a rule asks.
LOOK_S = 10.0
#: How old a reading may be.
MOST_AGE_MS = 300_000

_readings = msgspec.json.Decoder(dict[str, float])
_others = samples.alias()
_LAST = (
    select(func.max(_others.c.at_ms))
    .where(_others.c.host == hosts.c.number, _others.c.vm == "")
    .scalar_subquery()
)
_NEWEST = select(samples).where(
    samples.c.host == hosts.c.number, samples.c.vm == "", samples.c.at_ms == _LAST
)


class MeasuredHosts:
    """Keeps what hosts use, and their pressure, in the fleet as long as rules read it."""

    def __init__(self, store: Store, roster: Roster, clock: Clock) -> None:
        self._store, self._roster, self._clock = store, roster, clock

    async def look(self) -> None:
        """Bring the newest readings to the fleet if some rule reads them."""
        if self._roster.rulebook.reads_measured:
            await self.refresh()
            self._roster.room += 1  # a host may be less busy than it was

    async def refresh(self) -> None:
        """Bring the newest readings to the fleet; of a host without one nothing is known."""
        oldest = self._clock.wall_ms() - MOST_AGE_MS

        def question(connection: Connection) -> dict[int, Mapping[str, Any]]:
            rows = connection.execute(_NEWEST).mappings()
            return {row["host"]: dict(row) for row in rows if row["at_ms"] >= oldest}

        found = await self._store.read(question)
        for number, entry in self._roster.hosts.items():
            used, pressure = _measured(found.get(number))
            self._roster.fleet.set_measured(entry.name, used, pressure)


def _measured(row: Mapping[str, Any] | None) -> tuple[dict[str, int], dict[str, float]]:
    """Return use and pressure of one reading; what it lacks is left out."""
    if row is None:
        return {}, {}
    used = {name: max(0, row[f"{name}_{unit}"]) for name, unit in _UNITS.items()}
    more = _readings.decode(row["more"]) if row["more"] else {}
    named = {name: more.get(f"psi_{name}_some_avg10") for name in PRESSURES}
    return used, {name: value for name, value in named.items() if value is not None}


_UNITS = {"cpu": "milli", "memory": "bytes", "disk": "bytes"}
