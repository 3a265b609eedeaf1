"""See every preemption to its end, in one process for all; begin those of VMs that wait.

    moving    VMs move away; who finds no other host is stopped, if it may be
    stopping  all that could move have left: the others are stopped and wait for another host
    holding   all have been told to go: their host has yet to say that it destroyed them

At every look the VM is placed on the host first, if there is room enough by then: so nobody leaves
in vain when room appeared by itself. It ends in any phase when the VM waits no more, its host takes
none, a victim can neither be moved nor stopped, or it takes too long; then what was held is free,
who has not left yet stays, and those VMs are not asked again for a while. All of it is in rows:
another process goes on where this one stopped.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.create.drawing import life_of
from roost.control.create.placing import Placing
from roost.control.groups.budgets import BudgetSpent
from roost.control.memory.displacing import may_displace
from roost.control.memory.holdings import ORDINARY
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.moves.moving import Moving
from roost.control.preempt.arriving import arrive
from roost.control.preempt.beginning import begin, end, require_size, update
from roost.control.preempt.choosing import Choosing
from roost.control.preempt.displacing import displace, forget_displaced, has_run
from roost.control.preempt.record import (
    HOLDING,
    STOPPING,
    VictimRecord,
    named,
    victims_of,
    victims_text,
)
from roost.control.timers import Timers
from roost.control.vms.refusing import refused_by
from roost.control.vms.requests import request_of
from roost.ledger.claims.makingroom import hold_more
from roost.ledger.schema.changes import PREEMPTIONS
from roost.ledger.schema.rows import PreemptionRow, VMRow
from roost.ledger.schema.tables import preemptions, vms
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row, find_rows
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.preempt")

#: Preemptions that one look begins; the next look goes on.
_MOST_BEGUN = 10
#: VMs for which one look asks who could make room: each asks about every host.
_MOST_ASKED = 20
#: Moves of a victim that are begun before it is stopped, or left alone.
_MOST_MOVES = 2
#: How long VMs that did not leave are not asked again, and who found nobody asks no more at most.
_REST_S = 300.0
#: After this who found nobody asks again, then after twice as long: VMs that were on their way may
#: be at rest by then, and members of groups back, without room that anybody would have noticed.
_SOON_S = 10.0
#: How many times the longest move a preemption may take.
_MOVES_LONG = 3

_TROUBLE = (Conflict, NotFound, Unavailable)


class _Asked(NamedTuple):
    """When a VM asked who could make room, at which generation and room, and when it may again."""

    seen: tuple[int, int]
    again_at: float
    rest_s: float


class Preempting(Part):
    """Makes room for VMs that wait, as their policies and priority classes allow."""

    singleton: Singleton
    wakes = (PREEMPTIONS,)

    def __init__(
        self,
        store: Store,
        roster: Roster,
        choosing: Choosing,
        placing: Placing,
        moving: Moving,
        lineage: Lineage,
        singleton: Singleton,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._store, self._roster, self._choosing = store, roster, choosing
        self._placing, self._moving, self._lineage = placing, moving, lineage
        self._clock, self._limit_s = clock, _MOVES_LONG * timers.move_s
        self.singleton = singleton
        self._since: dict[str, float] = {}  # preemptions, when this process saw them first
        self._resting: dict[str, float] = {}  # VMs that are not asked, or do not ask, until then
        self._asked: dict[str, _Asked] = {}  # those who found nobody

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    def gained(self) -> None:
        """Count times anew: another process may have looked meanwhile."""
        self._since.clear()

    def is_due(self) -> bool:
        """Say whether room is made for anybody, or somebody waits who may ask for it."""
        roster = self._roster
        asked_for = bool(roster.classes.rows) and bool(roster.waiting)
        return bool(self._since) or bool(roster.displaced) or asked_for

    async def look(self) -> None:
        """Take every preemption a step further, and begin those that VMs in the queue ask for."""
        idle = not self._roster.classes.rows and not self._roster.displaced
        if idle and not self._since and not await self.list_all():
            return
        await self._forget_who_runs()
        rows = await self.list_all()
        now = self._clock.monotonic()
        self._since = {row.vm: self._since.get(row.vm, now) for row in rows}
        self._resting = {vm: until for vm, until in self._resting.items() if until > now}
        for row in rows:
            try:
                await self._tend(row)
            except _TROUBLE as error:
                log.info("room for VM %s is not made yet: %s", row.vm, error.message)
            except Exception:  # whatever it is, the others must not wait for this one
                log.exception("room for VM %s is not made", row.vm)
        await self._begin_for_waiting({row.vm for row in rows})

    async def list_all(self) -> list[PreemptionRow]:
        """Return all preemptions, those of the most important VMs first."""
        return await self._store.read(_all)

    # Those who wait

    async def _begin_for_waiting(self, served: set[str]) -> None:
        begun = asked = 0
        waiting = [vm for vm in self._roster.waiting.values() if self._may_ask(vm, served)]
        for vm in sorted(waiting, key=lambda vm: (-vm.priority, vm.created_ms, vm.id)):
            if begun >= _MOST_BEGUN or asked >= _MOST_ASKED:
                return
            seen, now = (vm.generation, self._roster.room), self._clock.monotonic()
            last, rest_s = self._asked.get(vm.id), _SOON_S
            if last is not None and last.seen == seen:
                if now < last.again_at:
                    continue  # nothing has changed since nobody was found
                rest_s = min(2 * last.rest_s, _REST_S)
            asked += 1
            # Noted whatever comes of it: who is refused each time must not be in others' way.
            self._asked[vm.id] = _Asked(seen, now + rest_s, rest_s)
            try:
                begun += await self.begin_for(vm, self.singleton.check)
            except _TROUBLE as error:
                log.info("no room is made for VM %s yet: %s", vm.name, error.message)
            except Exception:  # whatever it is, the others must not wait for this one
                log.exception("no room is made for VM %s", vm.name)
        self._asked = {vm: last for vm, last in self._asked.items() if vm in self._roster.waiting}

    def _may_ask(self, vm: VMRow, served: set[str]) -> bool:
        spec = self._roster.specs.get(vm.id)
        return (
            vm.id not in served
            and vm.id not in self._resting
            and vm.id not in self._roster.displaced
            and vm.desired != "absent"
            and not refused_by(vm)
            and spec is not None
            and may_displace(self._roster, spec.priority_class, spec.policy)
            and life_of(self._roster, spec, vm.project) is ORDINARY
        )

    async def begin_for(self, vm: VMRow, check: Callable[[Tx], None] | None = None) -> bool:
        """Begin to make room for a VM that waits; False when nobody can make any."""
        plan = await self._choosing.choose(
            request_of(vm, self._roster),
            never=tuple(self._resting),
            but=vm.id,
            refusable=check is None,  # not what this process does by itself
        )
        if plan is None:
            return False

        def change(tx: Tx) -> PreemptionRow:
            if check is not None:
                check(tx)
            return begin(tx, vm, plan)

        await self._store.write(change)
        log.info("%d VMs make room for VM %s on %s", len(plan.leaving), vm.name, plan.entry.name)
        return True

    # One preemption

    async def _tend(self, row: PreemptionRow) -> None:
        victims = victims_of(row)
        ids = [row.vm, *(each.vm for each in victims)]
        found = await self._store.read(lambda c: _rows(c, ids))
        waits, entry = found.get(row.vm), self._roster.hosts.get(row.host)
        why = self._why_over(row, waits, entry)
        if why:
            await self._end(row, why)
            return
        assert waits is not None
        assert entry is not None
        await self._store.write(lambda tx: self._top_up(tx, row))
        if await arrive(self._store, self._placing, waits, row, entry.name, self.singleton.check):
            log.info("VM %s has the room that was made for it on %s", waits.name, entry.name)
            return
        here = [each for each in victims if _is_here(found.get(each.vm), row)]
        movers = [each for each in here if each.how == "move"]
        if movers:
            await self._move(row, waits, victims, movers, found)
        elif here:
            resting = [each for each in here if not found[each.vm].phase]  # others leave already
            await self._stop(row, waits, resting)
        elif row.phase != HOLDING:
            await self._store.write(lambda tx: self._update(tx, row, phase=HOLDING))
        elif not await self._still_awaited(row, victims):
            # All have left and their room is not enough: somebody was faster, or it has shrunk.
            await self._end(row, "the room that was made is not enough", victims)

    def _why_over(self, row: PreemptionRow, waits: VMRow | None, entry: HostEntry | None) -> str:
        """Say why a preemption is over; empty while it goes on."""
        if waits is None or waits.desired == "absent":
            return "the VM is gone"
        if waits.host is not None:
            return "the VM has a host"
        if entry is None or entry.row.health == "offline" or entry.row.admin != "open":
            return "the host takes no VMs"
        if self._clock.monotonic() - self._since[row.vm] > self._limit_s:
            return "it took too long"
        return ""

    async def _move(
        self,
        row: PreemptionRow,
        waits: VMRow,
        victims: list[VictimRecord],
        movers: list[VictimRecord],
        found: Mapping[str, VMRow],
    ) -> None:
        """Begin the next move; who finds no host, or does not get away, is stopped if it may be."""
        for each in movers:
            vm = found[each.vm]
            if vm.phase:
                continue  # on its way
            begun = False
            if each.tries < _MOST_MOVES:
                try:
                    begun = isinstance(
                        await self._moving.begin(vm, "preempt", explain=False), VMRow
                    )
                except BudgetSpent as error:
                    log.info("VM %s waits to leave: %s", vm.name, error.message)
                    continue
            if begun:
                each.tries += 1
            elif vm.restart != "elsewhere":
                await self._end(row, f"{named(vm, row.project)} finds no other host", [each])
                return
            else:
                each.how = "stop"
            text = victims_text(victims)
            await self._store.write(lambda tx: self._update(tx, row, victims=text))  # noqa: B023

    async def _stop(self, row: PreemptionRow, waits: VMRow, here: list[VictimRecord]) -> None:
        """Stop the victims that are left, each as far as the budgets of its groups allow."""
        if row.phase != STOPPING:
            await self._store.write(lambda tx: self._update(tx, row, phase=STOPPING))

        def change(tx: Tx, vm: str) -> None:
            self.singleton.check(tx)
            first, second = sorted((vm, row.vm))
            locked = {each: tx.find(vms, lock=True, id=each) for each in (first, second)}
            now = locked[row.vm]
            # It may have found a host, or be gone, since this look began: then nobody is stopped.
            if now is None or now["host"] is not None or now["desired"] == "absent":
                return
            if tx.find(preemptions, vm=row.vm) is not None:
                require_size(tx, VMRow(**now), row.host)
                displace(tx, vm, row.host, waits)

        for each in here:
            try:
                await self._store.write(lambda tx: change(tx, each.vm))  # noqa: B023
            except BudgetSpent as error:
                log.info("VM %s waits to be stopped: %s", each.vm, error.message)
            except Conflict as error:
                await self._end(row, error.message, [each])
                return

    async def _still_awaited(self, row: PreemptionRow, victims: list[VictimRecord]) -> bool:
        """Say whether the host still has something of a victim, which it will give back."""
        numbers = self._roster.fleet.vms.numbers
        entry = self._roster.hosts.get(row.host)
        columns = self._roster.fleet.vms
        if entry is None:  # it was removed since this look began
            return False
        for each in victims:
            for kind in ("run", "hold", "migrate_in"):
                number = numbers.get(f"{each.vm}:{kind}")
                if number is not None and int(columns.host[number]) == entry.fleet_row:
                    return True
        return False

    # Writing

    def _top_up(self, tx: Tx, row: PreemptionRow) -> None:
        self.singleton.check(tx)
        if tx.find(preemptions, vm=row.vm) is not None:
            hold_more(tx, row.vm, row.host)

    def _update(self, tx: Tx, row: PreemptionRow, **values: str) -> None:
        self.singleton.check(tx)
        update(tx, row, **values)

    async def _end(
        self, row: PreemptionRow, why: str, blamed: list[VictimRecord] | None = None
    ) -> None:
        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            end(tx, row, why)

        await self._store.write(change)
        log.info("room for VM %s is not made any more: %s", row.vm, why)
        until = self._clock.monotonic() + _REST_S
        self._resting.update({each.vm: until for each in blamed or ()})
        if why == "it took too long":
            self._resting[row.vm] = until

    async def _forget_who_runs(self) -> None:
        """Forget that VMs were displaced that have run again."""
        if not self._roster.displaced:
            return
        marks = dict(self._roster.displaced)
        found = await self._store.read(lambda c: _rows(c, list(marks)))
        for vm, mark in marks.items():
            row = found.get(vm)
            if row is None or has_run(row, mark.generation):
                await self._store.write(lambda tx: self._forget(tx, vm))  # noqa: B023

    def _forget(self, tx: Tx, vm: str) -> None:
        self.singleton.check(tx)
        forget_displaced(tx, vm)


def _all(connection: Connection) -> list[PreemptionRow]:
    """Return all preemptions, those of the most important VMs first."""
    rows = [PreemptionRow(**row) for row in find_rows(connection, preemptions, {})]
    return sorted(rows, key=lambda row: (-row.priority, row.begun_ms, row.vm))


def _rows(connection: Connection, ids: list[str]) -> dict[str, VMRow]:
    found = (find_row(connection, vms, {"id": vm}) for vm in ids)
    return {row["id"]: VMRow(**row) for row in found if row is not None}


def _is_here(vm: VMRow | None, row: PreemptionRow) -> bool:
    return vm is not None and vm.host == row.host and vm.desired != "absent"
