"""Agents' readings into the store of series: queued as they come, written together, off every path.

An agent is believed of its own host, and of VMs that are there as far as this process has heard.
Nothing waits for the store: when it cannot be used the newest readings wait in bounded memory, the
plane goes on placing VMs, and says so (doctor, readiness, metrics).
"""

import asyncio
import logging
from collections.abc import Sequence

from sqlalchemy import Connection

from roost.analysis.store import SeriesStore
from roost.base.clock import Clock
from roost.base.errors import SeriesUnavailable
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.memory.turns import Turns
from roost.control.vms.ruling import host_of_claim
from roost.ledger.claims.capacity import RUN
from roost.ledger.upkeep.examination import Examination
from roost.model.series import Reading, Subject
from roost.parts.part import Loop, Part
from roost.wire.agentlimits import MOST_SAMPLES
from roost.wire.agentlink import SampleInfo

log = logging.getLogger("roost.series")

#: Readings that are written in one transaction, and those that may wait in all.
_MOST_TOGETHER, _MOST_WAITING = 50_000, 200_000
#: How long readings are gathered before they are written, and the pause after a failure.
FLUSH_S, _RETRY_S = 10.0, 15.0


class Readings(Part):
    """Writes agents' readings to the store of series."""

    def __init__(
        self, store: SeriesStore, roster: Roster, clock: Clock, telemetry: Telemetry
    ) -> None:
        self.store = store
        self._roster, self._clock = roster, clock
        self._waiting: Turns[tuple[int, Reading]] = Turns(MOST_SAMPLES, _MOST_WAITING)
        self._arrived = asyncio.Event()
        self.trouble = ""  # why the store cannot be used, in words
        self._left_out = telemetry.counter(
            "roost_readings_left_out",
            "Readings of agents that are not kept: of VMs that are elsewhere, too old, unknown.",
        )

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (Loop(self.run),)

    def take(self, host: int, samples: Sequence[SampleInfo]) -> None:
        """Queue an agent's samples for the next batch."""
        entry = self._roster.hosts.get(host)
        if entry is None:
            return
        found = []
        for sample in samples:
            if not sample.vm:
                subject = Subject("host", entry.name)
            elif host_of_claim(self._roster, f"{sample.vm}:{RUN}") is entry:
                subject = Subject("vm", sample.vm)
            else:
                continue
            figures = {
                "cpu_milli": float(sample.cpu_milli),
                "memory_bytes": float(sample.memory_bytes),
                "disk_bytes": float(sample.disk_bytes),
                **sample.more,
            }
            found.append((host, Reading(subject, sample.at_ms, figures)))
        if len(found) < len(samples):
            self._left_out.inc(len(samples) - len(found))
        if found:
            self._waiting.put(host, found)
            self._arrived.set()

    async def run(self) -> None:
        """Write queued readings until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._clock.sleep(FLUSH_S)
            while self._waiting:
                try:
                    await self.flush()
                except SeriesUnavailable:
                    await self._clock.sleep(_RETRY_S)
                except Exception:  # a service loop must outlive its mistakes
                    log.exception("readings were not written")

    async def flush(self) -> None:
        """Write one batch of queued readings; what cannot be written waits."""
        taken = self._waiting.take(_MOST_TOGETHER)
        if not taken:
            return
        try:
            put = await self.store.put([each for _, each in taken], self._clock.wall_ms())
        except SeriesUnavailable as error:
            self._note(error.message)
            hosts: dict[int, list[tuple[int, Reading]]] = {}
            for each in taken:
                hosts.setdefault(each[0], []).append(each)
            for host, found in hosts.items():
                self._waiting.put_back(host, found)
            raise
        self._note("")
        if put.left_out:
            self._left_out.inc(put.left_out)

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("series are not kept: %s; everything else goes on", trouble)
        elif self.trouble and not trouble:
            log.info("series are kept again")
        self.trouble = trouble

    async def see_store(self) -> None:
        """Find out whether the store can be used, for a doctor."""
        found = await self.store.examine()
        self._note("; ".join(found))

    def examine(self, connection: Connection, found: Examination) -> None:
        """Say whether series are kept."""
        found.count("series", 1)
        if self.trouble:
            found.trouble("series", f"series are not kept, or not all: {self.trouble}")
