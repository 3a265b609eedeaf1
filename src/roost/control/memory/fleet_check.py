"""Checks the fleet in memory against its own VMs, a bounded piece at a time.

Every decision reads sums that are kept up to date by each change. A mistake in that would show only
as hosts that look fuller or emptier than they are, for as long as the process lives. So each look
adds up some hosts and groups from scratch; what differs is logged, counted in a metric and a
finding of `doctor` until it is right again. It never changes anything and refuses nobody: the
ledger compares every claim again, so a wrong sum costs room or retries, never a broken promise.
"""

import logging
from collections.abc import Sequence

from sqlalchemy import Connection

from roost.control.memory.roster import Roster
from roost.fleet.check import Sampler
from roost.ledger.upkeep.examination import Examination
from roost.parts.part import Loop, Part

log = logging.getLogger("roost.fleet")

#: Ten thousand hosts are gone through in a quarter of an hour, in 0.05% of a core.
LOOK_S = 5.0


class FleetCheck(Part):
    """Samples the fleet of one process."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._sampler = Sampler(roster.fleet)
        self._told: set[str] = set()

    def load(self, connection: Connection) -> None:
        """Begin with the fleet that the roster, loaded before, has made."""
        self._sampler = Sampler(self._roster.fleet)

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (Loop(self.sample, LOOK_S),)

    async def sample(self) -> None:
        """Check the next piece, and say what is wrong when it is new."""
        self._sampler.look()
        for said in self._sampler.wrong.keys() - self._told:
            log.error(
                "the fleet in memory is not the sum of its VMs: %s; restart this process",
                self._sampler.wrong[said],
            )
        self._told = set(self._sampler.wrong)

    @property
    def wrong(self) -> Sequence[str]:
        """Return what was found wrong and is not right again yet."""
        return list(self._sampler.wrong.values())

    def examine(self, connection: Connection, found: Examination) -> None:
        """Say what is wrong."""
        for said in self.wrong:
            found.find("fleet", said)
