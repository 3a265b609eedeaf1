"""Who would make room for a VM: asked of the engine, the disruption budgets and the ledger's rows.

The engine chooses on the fleet in memory (`placement/preempting.py`), which knows neither labels
nor names nor what other groups' members do. So budgets are counted in the ledger before, and what
was chosen is looked at there afterwards: who changed meanwhile, is in another preemption, is not
cleaned up yet where it was before, or finds no other host as the rules of its project say, is left
out, and the engine is asked again.

It is asked on a copy, in a thread: a choice among many VMs may take a second. What is planned may
be older than the ledger then; whoever begins to carry it out compares generations (`beginning.py`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import Connection, bindparam, select

from roost.control.create.placing import find_host
from roost.control.groups.budgets import spending
from roost.control.memory.follower import Follower
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.oneatatime import OneAtATime
from roost.control.memory.roster import Roster, how_leaves
from roost.control.preempt.record import How, VictimRecord, victim_body, victims_of
from roost.fleet.layout import Int64Array
from roost.ledger.claims.capacity import CLEANUP, RUN, claim_id
from roost.ledger.schema.rows import PreemptionRow, VMRow
from roost.ledger.schema.tables import claims, preemptions, vms
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_rows
from roost.model.flow import Placement, PlaceRequest
from roost.model.kept import Counters, counters_of
from roost.model.resources import NumaMode
from roost.placement.preempting import Limits, MadeRoom, Victim, make_room
from roost.placement.whatif import WhatIf
from roost.wire.bodies import PreemptionBody

#: Times that the engine is asked again because of what the ledger says.
_MOST_TRIES = 16
#: VMs that were read when they were last seen to be at rest.
_AT_REST = ("running", "paused", "stopped")

_RANKS = select(
    vms.c.id, vms.c.phase, vms.c.desired, vms.c.restart, vms.c.priority, vms.c.created_ms
).where(vms.c.host.is_not(None))
_SOME = select(vms).where(vms.c.id.in_(bindparam("ids", expanding=True)))
#: VMs that were elsewhere before, where they are not cleaned up yet.
_UNCLEAN = select(claims.c.vm).where(
    claims.c.vm.in_(bindparam("ids", expanding=True)), claims.c.kind == CLEANUP
)


@dataclass(frozen=True, slots=True)
class Leaving:
    """A VM that would make room, how, and where it would go."""

    vm: VMRow
    how: How
    target: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who would make room for a VM, and on which host."""

    entry: HostEntry
    generation: int  # of the host, when it was decided
    leaving: tuple[Leaving, ...]
    counters: Counters = ()  # devices, NUMA cells and extended resources that the VM would have

    def records(self) -> list[VictimRecord]:
        """Return the victims as they are kept."""
        return [VictimRecord(each.vm.id, each.how) for each in self.leaving]

    def body(self, vm: str, name: str, project: str, priority: int) -> PreemptionBody:
        """Return the plan as users see it."""
        return PreemptionBody(
            vm=vm,
            name=name,
            project=project,
            priority=priority,
            host=self.entry.name,
            phase="planned",
            victims=[victim_body(each.vm, each.how, target=each.target) for each in self.leaving],
        )


class _Copy:
    """A copy of the fleet, with the hosts and their generations as they were when it was taken."""

    def __init__(self, roster: Roster) -> None:
        self.world = WhatIf.like(roster.engine)
        # Rows may change hands meanwhile, and hosts their generations.
        self.hosts = {row: (each, each.generation) for row, each in roster.by_fleet_row.items()}

    def limits(self, left: Mapping[str, int], never: set[str], settled: set[str]) -> Limits:
        """Return what a choice must keep to, in the numbers of this fleet."""
        find = self.world.fleet.groups.find
        return Limits(
            {find(name): count for name, count in left.items() if find(name) >= 0},
            never=self._numbers(never),
            settled=self._numbers(settled),
        )

    def counters(self, found: MadeRoom, request: PlaceRequest) -> Counters:
        """Return what a request would take of counters, with the VMs gone that make room."""
        demand, fleet = request.demand, self.world.fleet
        if demand.devices is None and demand.numa is NumaMode.ANY and not demand.extended:
            return ()
        here = replace(request.constraints, pinned=(fleet.hosts.names[found.row],))
        mark, version = fleet.mark(), fleet.version
        try:
            for each in found.victims:
                fleet.remove(each.number)
            placement = self.world.find(replace(request, constraints=here))
        finally:
            fleet.undo(mark)
            fleet.version = version
        return () if placement is None else counters_of(demand, placement.devices, placement.cells)

    def _numbers(self, ids: Iterable[str]) -> frozenset[int]:
        known = self.world.fleet.vms.numbers
        found = (known.get(claim_id(vm, RUN)) for vm in ids)
        return frozenset(number for number in found if number is not None)


class Choosing:
    """Finds the VMs that would make room for another one."""

    def __init__(self, store: Store, roster: Roster, follower: Follower) -> None:
        self._store, self._roster, self._follower = store, roster, follower
        self._ranking = asyncio.Lock()
        self._long = OneAtATime("searches for VMs that make room")

    async def choose(
        self,
        request: PlaceRequest,
        *,
        never: Iterable[str] = (),
        but: str = "",
        refusable: bool = True,
    ) -> Plan | None:
        """Return who would make room for a request; `never` are VMs that may not be asked.

        `but` is the VM itself: what is planned for it is not in its way. Raises SearchBusy when too
        many wait already for their turn, unless the process asks by itself.
        """
        await self._rank()
        settled: set[str] = set()  # VMs that no other host takes
        async with self._long.turn(refusable=refusable):
            budgets, taken = await self._store.read(lambda c: (spending(c), _taken(c, but)))
            left = {name: each.left for name, each in budgets.items()}
            banned = {*never, *taken}
            copy = _Copy(self._roster)
            for _ in range(_MOST_TRIES):
                limits = copy.limits(left, banned, settled)
                found = await asyncio.to_thread(make_room, copy.world, request, limits)
                if found is None:
                    return None
                plan = await self._look_at(copy, found, request, banned, settled)
                if plan is not None:
                    return plan
        return None

    async def _rank(self) -> None:
        """Let the fleet in memory know how important its VMs are; once, events do the rest."""
        async with self._ranking:  # nobody chooses among VMs of which half are ranked
            if self._roster.ranked:
                return
            self._roster.ranked = True  # already, for events that come while it is read
            try:
                await self._follower.catch_up()
                ranks = await self._store.read(_ranks)
            except BaseException:
                self._roster.ranked = False  # the next one tries again
                raise
            self._roster.rank_all(*ranks)

    async def _look_at(
        self,
        copy: _Copy,
        found: MadeRoom,
        request: PlaceRequest,
        banned: set[str],
        settled: set[str],
    ) -> Plan | None:
        """Compare a choice with the ledger; None when somebody in it must be left out."""
        entry, generation = copy.hosts[found.row]
        names = copy.world.fleet.vms.names
        of = {names[each.number].rpartition(":")[0]: each for each in found.victims}
        rows, unclean = await self._store.read(lambda c: (_rows(c, list(of)), _unclean(c, of)))
        wrong = [
            vm for vm in of
            if vm not in rows
            or vm in unclean
            or not _may_leave(rows[vm], entry.number, request.priority, of[vm])
        ]  # fmt: skip
        if wrong:
            banned.update(wrong)
            return None
        leaving = []
        with_moves = self._where(
            [rows[vm] for vm, each in of.items() if not each.stops], entry.name
        )
        for vm, each in of.items():
            if each.stops:
                leaving.append(Leaving(rows[vm], "stop"))
            elif vm in with_moves:
                leaving.append(Leaving(rows[vm], "move", with_moves[vm]))
            else:
                settled.add(vm)
                return None
        return Plan(entry, generation, tuple(leaving), copy.counters(found, request))

    def _where(self, movers: list[VMRow], source: str) -> dict[str, str]:
        """Return where VMs would go one after the other; who finds no host is not there."""
        fleet, engine = self._roster.fleet, self._roster.engine
        mark, version, cursor = fleet.mark(), fleet.version, engine.cursor
        found: dict[str, str] = {}
        try:
            for vm in movers:
                number = fleet.vms.numbers.get(claim_id(vm.id, RUN))
                if number is None or self._roster.specs.get(vm.id) is None:
                    continue  # it left since the copy was taken, or cannot be placed anywhere
                placement = find_host(self._roster, vm, never=(source,), explain=False)
                if isinstance(placement, Placement):
                    found[vm.id] = placement.host
                    columns = fleet.vms
                    demand, terms = columns.demand[number].copy(), int(columns.terms[number])
                    group_set = int(columns.group_set[number])
                    fleet.remove(number)
                    fleet.apply(claim_id(vm.id, RUN), placement.host_row, demand, terms, group_set)
            return found
        finally:
            fleet.undo(mark)
            fleet.version, engine.cursor = version, cursor


def _may_leave(vm: VMRow, host: int, priority: int, how: Victim) -> bool:
    """Say whether a VM of the ledger may still make room as it was chosen to."""
    return (
        vm.host == host
        and not vm.phase
        and vm.desired != "absent"
        and vm.priority < priority
        and vm.observed in _AT_REST
        and (vm.restart == "elsewhere" or not how.stops)
    )


def _ranks(connection: Connection) -> tuple[list[str], Int64Array, Int64Array, Int64Array]:
    """Return all placed VMs, as the roster ranks them; here, away from the event loop."""
    found = [
        (vm_id, how_leaves(phase, desired, restart), priority, created_ms)
        for vm_id, phase, desired, restart, priority, created_ms in connection.execute(_RANKS)
    ]
    columns = np.array([each[1:] for each in found], np.int64).reshape(-1, 3)
    return [each[0] for each in found], columns[:, 0], columns[:, 1], columns[:, 2]


def _rows(connection: Connection, ids: list[str]) -> dict[str, VMRow]:
    return {row["id"]: VMRow(**row) for row in connection.execute(_SOME, {"ids": ids}).mappings()}


def _unclean(connection: Connection, ids: Iterable[str]) -> set[str]:
    return set(connection.execute(_UNCLEAN, {"ids": list(ids)}).scalars())


def _taken(connection: Connection, but: str) -> set[str]:
    """Return the VMs that make room for others already."""
    rows = [PreemptionRow(**row) for row in find_rows(connection, preemptions, {})]
    return {each.vm for row in rows if row.vm != but for each in victims_of(row)}
