"""Gather the board that a plan is drafted on: the fleet of one moment and what is known beside it.

VMs and their specs, budgets and earlier moves are read from the ledger, dirty rates from the store
of series, the fleet is copied from memory. A VM that another process has moved since is refused by
the claim when its turn comes, and the rest is planned anew.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from roost.analysis.store import SeriesReader
from roost.base.clock import Clock
from roost.base.errors import SeriesUnavailable
from roost.control.create.placing import give_back_hold
from roost.control.groups.budgets import spending
from roost.control.memory.roster import Roster
from roost.control.plans.quiet import LABEL, why_quiet
from roost.control.plans.record import actual_of, predicted_of
from roost.control.rules.judging import requests_of_placed
from roost.ledger.claims.makingroom import planned_owner
from roost.ledger.schema.rows import PlanMoveRow, VMRow, labels_of
from roost.ledger.schema.tables import plan_moves
from roost.ledger.store import Store
from roost.model.flow import PlaceRequest
from roost.model.series import Resolution, Subject
from roost.placement.whatif import WhatIf
from roost.planner.board import (
    Board,
    Candidate,
    Limits,
    Links,
    unknown_bandwidth,
    unknown_links,
)
from roost.planner.cost import Load, MemoryRead, learnt_factor
from roost.planner.guards import COUNTED_S, resting

log = logging.getLogger("roost.plans")

#: How old a reading of a VM's memory may be.
_READ_AGE_MS = 3_600_000
_DIRTY, _RESIDENT = "dirty_bytes_per_s", "guest_resident_bytes"
#: Moves that the cost model learns from, the newest.
_MOST_LEARNT = 200

_DONE = (
    select(plan_moves)
    .where(plan_moves.c.state == "done", plan_moves.c.ended_ms > bindparam("since"))
    .order_by(plan_moves.c.ended_ms.desc())
    .limit(100_000)
)


class Gathering:
    """Makes boards of the fleet as it is now."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        series: SeriesReader,
        clock: Clock,
        declared: Callable[[int, int], float | None] = lambda _a, _b: None,
        ready: Callable[[], Awaitable[object]] | None = None,
        links: Links = unknown_links,
    ) -> None:
        self._store, self._roster, self._series, self._clock = store, roster, series, clock
        self._ready, self._links = ready, links  # reads the newest network; its links
        self._declared = declared  # bandwidth between hosts, where somebody has described it

    def _bandwidth(self, source: int, target: int) -> float:
        """Return the bandwidth between two hosts by fleet rows, in bytes per second."""
        found = self._declared(source, target)
        return unknown_bandwidth(source, target) if found is None else max(1.0, found)

    async def board(self, limits: Limits, at_ms: int | None = None, own: str = "") -> Board:
        """Return a board of now, for a plan that begins at a moment.

        What is held for the moves of the plan `own` is free on it.
        """
        now_ms = self._clock.wall_ms()
        if self._ready is not None:
            await self._ready()
        placed = await requests_of_placed(self._store, self._roster)
        rows = await self._store.read(lambda c: _done(c, now_ms - 1000 * COUNTED_S))
        budgets = await self._store.read(spending)
        moved: dict[str, list[int]] = {}
        for row in rows:
            moved.setdefault(row.vm, []).append((row.ended_ms or 0) // 1000)
        # A thread's work: a large fleet has a second of it, and nothing else would be served.
        candidates = await asyncio.to_thread(
            lambda: {
                vm.id: self._candidate(vm, request, moved, budgets.keys(), at_ms or now_ms)
                for vm, request in placed
                if vm.host is not None
            }
        )
        world = WhatIf.like(self._roster.engine)
        for held in self._roster.holdings.of_owner(planned_owner(own)) if own else ():
            give_back_hold(self._roster, held, world.fleet)
        numbers = {row: entry.number for row, entry in self._roster.by_fleet_row.items()}
        return Board(
            world,
            candidates,
            numbers,
            now_ms // 1000,
            limits,
            {group: stands.allowed for group, stands in budgets.items()},
            self._bandwidth,
            self._links,
            learnt_factor(_pairs(rows[:_MOST_LEARNT])),
        )

    async def memory_read(self, vms: Sequence[str]) -> Mapping[str, MemoryRead]:
        """Return how fast VMs write and how much they have written, as last read in an hour."""
        now_ms, found = self._clock.wall_ms(), dict[str, MemoryRead]()
        asked = (_DIRTY, _RESIDENT)
        try:
            for vm in vms:
                subject, since = Subject("vm", vm), now_ms - _READ_AGE_MS
                columns = await self._series.read(subject, since, now_ms, Resolution.RAW, asked)
                dirty, resident = (_newest(columns.figures.get(name)) for name in asked)
                if dirty is not None or resident is not None:
                    found[vm] = MemoryRead(dirty, None if resident is None else int(resident))
        except SeriesUnavailable as error:
            log.warning("memory that VMs write is not known: %s", error.message)
        return found

    def _candidate(
        self,
        vm: VMRow,
        request: PlaceRequest,
        moved: Mapping[str, list[int]],
        budgeted: Container[str],
        at_ms: int,
    ) -> Candidate:
        assert vm.host is not None
        groups = self._roster.groups_of.get(vm.id, ())
        cold = vm.observed == "stopped"
        return Candidate(
            vm.id,
            vm.name,
            request,
            vm.host,
            Load(vm.memory_bytes, None, vm.disk_bytes, "cold" if cold else "live"),
            stays=self._why_stays(vm),
            quiet=why_quiet(labels_of(vm.labels).get(LABEL), at_ms),
            resting=resting(moved.get(vm.id, []), self._clock.wall_ms() // 1000),
            budgets=tuple(each for each in groups if each in budgeted),
            together=self._together(groups),
        )

    def _together(self, groups: Sequence[str]) -> str:
        """Return the group whose VMs are to be near each other; empty when there is none."""
        for each in groups:
            row = self._roster.groups.get(each)
            if row is not None and row.rule == "affinity":
                return f"{row.project}/{row.name}"
        return ""

    def _why_stays(self, vm: VMRow) -> str:
        """Say why a VM cannot be moved at all now, as a move would."""
        entry = self._roster.hosts.get(vm.host or -1)
        if vm.phase:
            return "it is moving already"
        if entry is None or entry.row.health == "offline":
            return "its host is offline and cannot send it"
        if vm.observed not in ("running", "paused", "stopped"):
            return f"it is {vm.observed or 'not started'}; it can move when it runs or is stopped"
        return ""


def _newest(column: NDArray[np.float64] | None) -> float | None:
    if column is None:
        return None
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else None


def _done(connection: Connection, since_ms: int) -> list[PlanMoveRow]:
    found = connection.execute(_DONE, {"since": since_ms}).mappings()
    return [PlanMoveRow(**row) for row in found]


def _pairs(rows: list[PlanMoveRow]) -> list[tuple[float, float]]:
    """Return predicted and actual seconds of moves that were made; nothing learnt is in either."""
    found = []
    for row in rows:
        predicted, actual = predicted_of(row), actual_of(row)
        if actual is not None:
            found.append((predicted.total_s / (predicted.factor or 1.0), actual.total_s))
    return found
