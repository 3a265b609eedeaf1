"""The report on a whole fleet: read host by host in the background, kept for ten minutes.

Who asks first begins it; who asks while it is made is told how far it is. One is made at a time,
and it rests as a pass of `learning` does. What is kept of a VM are a few numbers, so a large fleet
takes time and little memory.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from roost.analysis.fleetreport import (
    HostFindings,
    HostWeek,
    VMFindings,
    VMWeek,
    look_at_hosts,
    look_at_vm,
    peak_sharing,
)
from roost.analysis.outlook import Ahead, HostSeries, Use, VMSeries
from roost.analysis.store import SeriesReader
from roost.base.clock import Clock
from roost.base.errors import SeriesUnavailable
from roost.control.learning.gathering import gather, origin_of
from roost.control.learning.profiling import HIGHS, MEANS, NETWORK, OF_MANY, read_week
from roost.control.learning.telling import Known, Whole, group_of, report_of
from roost.control.learning.waiting import require_compiled
from roost.control.memory.roster import Roster
from roost.ledger.claims.capacity import RUN
from roost.ledger.schema.tables import vms as vms_table
from roost.ledger.store import Store
from roost.model.series import DAY_MS, Subject
from roost.wire.profiles import PeakingVM, SharedPeaksBody
from roost.wire.reports import FleetReportBody, ReportQuery

log = logging.getLogger("roost.learning")

#: How long a report is kept, and how long who asks waits for one before being told how far it is.
KEPT_S, WAIT_S = 600.0, 2.0
#: A week ahead, at the quantile 0.9 whatever predictions are made at: pages say one time in ten.
_WEEK_STEPS = 2016
#: The rest after a host, in terms of what it took, and at least.
_REST, _LEAST_REST_S = 1.0, 0.01


class _Home(NamedTuple):
    """A host as the fleet has it: what it has, promises and holds."""

    name: str
    total: tuple[int, int]
    committed: tuple[int, int]
    vms: tuple[tuple[str, tuple[int, int]], ...]


class Reporting:
    """Makes reports on the fleet, one at a time, and keeps the last one."""

    def __init__(
        self, reader: SeriesReader, store: Store, roster: Roster, clock: Clock, bound: float
    ) -> None:
        self._reader, self._store, self._roster, self._clock = reader, store, roster, clock
        self._bound = bound
        self._asked, self._ended = asyncio.Event(), asyncio.Event()
        self._done = self._total = 0
        self._made: Whole | None = None
        self._last: Whole | None = None  # the same, also after it is too old to be told
        self._ended_at = 0.0
        self._trouble: Exception | None = None  # why the last one was not made, until it is told

    async def report(self, query: ReportQuery) -> FleetReportBody:
        """Return the last report, or have one made and say how far it is."""
        require_compiled("a report")
        old = self._clock.monotonic() - self._ended_at > KEPT_S
        ended = self._made is not None or self._trouble is not None
        if not self._asked.is_set() and (old or not ended):
            self._made, self._trouble = None, None
            self._done, self._total = 0, len(self._roster.hosts)
            self._ended.clear()
            self._asked.set()
        if self._asked.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), WAIT_S)
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        if self._made is None:
            return FleetReportBody(done=self._done, total=self._total, report=None)
        made = await asyncio.to_thread(report_of, self._made, query.top)
        return FleetReportBody(done=self._total, total=self._total, report=made)

    async def serve(self) -> None:
        """Make reports that were asked for, one after the other, until cancelled."""
        while True:
            await self._asked.wait()
            try:
                await self.make(paced=True)
            except Exception:  # a service loop must outlive its mistakes
                log.exception("a report on the fleet failed")

    async def make(self, *, paced: bool = False) -> None:
        """Read the week of all hosts and VMs, and keep what it says, or why nothing can be said.

        Who asked is told in any case; what is no trouble of the store is raised here as well.
        """
        try:
            self._made = self._last = await self._read_all(paced=paced)
        except SeriesUnavailable as error:
            self._trouble = error
        except Exception as error:
            self._trouble = error
            raise
        finally:  # whoever asks again after a trouble has it tried again
            self._ended_at = self._clock.monotonic()
            self._asked.clear()
            self._ended.set()

    def peaks_of(self, vm: str) -> SharedPeaksBody | None:
        """Return whom a VM peaked together with in the last report of a day, if there was one."""
        last = self._last
        if last is None or self._clock.wall_ms() - last.origin_ms > DAY_MS:
            return None
        for group in last.groups:
            if vm in group.members:
                told = group_of(last, group)
                return SharedPeaksBody(
                    origin_ms=last.origin_ms,
                    vms=[
                        PeakingVM(vm=each.vm, name=each.name, project=each.project)
                        for each in told.vms
                        if each.vm != vm
                    ],
                    count=told.count,
                    correlation=told.correlation,
                    peak_hour=told.peak_hour,
                    hosts=told.hosts,
                )
        return None

    async def _read_all(self, *, paced: bool) -> Whole:
        origin_ms = origin_of(self._clock.wall_ms())
        ahead = Ahead(origin_ms // 1000, steps=_WEEK_STEPS)
        known = await self._store.read(_known)
        vms: list[VMFindings] = []
        hosts: list[HostFindings] = []
        unread, homes = 0, dict[str, str]()
        for home in await self._homes():
            begun = self._clock.monotonic()
            week, found, read = await self._look(home, origin_ms)
            vms += found
            homes.update((vm, home.name) for vm, _ in home.vms)
            hosts += await asyncio.to_thread(look_at_hosts, [week], ahead, self._bound)
            unread += not read
            self._done += 1
            if paced:
                took = self._clock.monotonic() - begun
                await self._clock.sleep(max(_LEAST_REST_S, _REST * took))
        groups = await asyncio.to_thread(peak_sharing, vms, origin_ms // 1000)
        return Whole(origin_ms, known, vms, hosts, groups, unread, homes)

    async def _look(
        self, home: _Home, origin_ms: int
    ) -> tuple[HostWeek, Sequence[VMFindings], bool]:
        use = await gather(self._reader, Subject("host", home.name), origin_ms)
        series, found = [], []
        for vm, asked in home.vms:
            week = await read_week(self._reader, vm, origin_ms, OF_MANY)
            figures = week.figures
            means = Use(*(figures[name] for name in MEANS))
            looked = VMWeek(
                vm,
                asked,
                means,
                Use(*(figures[name] for name in HIGHS)),
                figures[NETWORK[0]] + figures[NETWORK[1]],
            )
            series.append(VMSeries(vm, means))
            found.append(await asyncio.to_thread(look_at_vm, looked))
        week_of_host = HostWeek(
            home.name,
            home.total,
            home.committed,
            HostSeries(home.name, use, tuple(series)),
            dict(home.vms),
        )
        return week_of_host, found, bool(np.isfinite(use.cpu).any())

    async def _homes(self) -> list[_Home]:
        """Return hosts as they are now; copied here, and sorted out in a thread."""
        vms, totals = self._roster.fleet.vms, self._roster.fleet.hosts.total
        rows = sorted((each.name, each.fleet_row) for each in self._roster.hosts.values())
        total = {row: (max(0, int(totals[row, 0])), max(0, int(totals[row, 1]))) for _, row in rows}
        where, demand = vms.host[: vms.count].copy(), vms.demand[: vms.count, :2].copy()
        names = vms.names.copy()

        def sort_out() -> list[_Home]:
            there: dict[int, list[tuple[str, tuple[int, int]]]] = {row: [] for _, row in rows}
            for number in np.flatnonzero(where >= 0).tolist():
                vm, _, kind = names[number].rpartition(":")
                if kind == RUN and (held := there.get(int(where[number]))) is not None:
                    held.append((vm, (int(demand[number, 0]), int(demand[number, 1]))))
            return [_home(name, total[row], there[row]) for name, row in rows]

        return await asyncio.to_thread(sort_out)


def _home(name: str, total: tuple[int, int], held: list[tuple[str, tuple[int, int]]]) -> _Home:
    asked = (sum(cpu for _, (cpu, _) in held), sum(memory for _, (_, memory) in held))
    return _Home(name, total, asked, tuple(held))


def _known(connection: Connection) -> dict[str, Known]:
    """Return what VMs are called, by id."""
    asked = select(vms_table.c.id, vms_table.c.name, vms_table.c.project)
    return {row.id: Known(row.name, row.project) for row in connection.execute(asked)}
