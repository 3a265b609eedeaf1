"""Empty hosts that drain: two moves at a time on each; VMs that fit nowhere else stay, reported."""

import logging

from sqlalchemy import Connection, bindparam, select

from roost.base.backoff import BackOff
from roost.base.clock import Clock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.moves.moving import Moving
from roost.ledger.schema.changes import HOSTS, VMS
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import vms
from roost.ledger.store import Store
from roost.parts.part import Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.drain")

#: Moves off one host at a time: while one VM waits for its target, the other's memory is copied,
#: and more would only share the host's link. The moves of plans are two off a host, too.
AT_ONCE = 2

#: How long a VM that could not be moved off a host is left alone: others come first.
_WAITS = BackOff(10.0, 600.0)

_HERE = (
    select(vms)
    .where(vms.c.host == bindparam("on_host"), vms.c.desired != "absent")
    .order_by(vms.c.priority.desc(), vms.c.id)
)


class Drain(Part):
    """Drains hosts: moves their VMs away, a few at a time."""

    singleton: Singleton
    wakes = (VMS, HOSTS)

    def __init__(
        self,
        store: Store,
        roster: Roster,
        moving: Moving,
        lineage: Lineage,
        singleton: Singleton,
        clock: Clock,
    ) -> None:
        self._store, self._roster, self._moving = store, roster, moving
        self._lineage, self._clock = lineage, clock
        self.singleton = singleton
        #: How often a VM was moved in vain, and when it is tried again.
        self._tries: dict[tuple[str, int], tuple[int, float]] = {}
        #: VMs that could not go, until when they are passed over while another one moves.
        self._passed: dict[tuple[str, int], float] = {}
        self._empty: set[int] = set()  # draining hosts that had no VM at the last look

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    def is_due(self) -> bool:
        """Say whether a host drains that was not seen empty."""
        return any(_drains(e) and e.number not in self._empty for e in self._roster.hosts.values())

    async def look(self) -> None:
        """Begin the next moves of every draining host."""
        draining = {e.number for e in self._roster.hosts.values() if e.row.admin == "draining"}
        self._tries = {key: tries for key, tries in self._tries.items() if key[1] in draining}
        self._passed = {key: until for key, until in self._passed.items() if key[1] in draining}
        self._empty = set()
        for entry in list(self._roster.hosts.values()):
            if _drains(entry):
                await self._next(entry)

    async def _next(self, entry: HostEntry) -> None:
        here = await self._store.read(lambda c: _vms_on(c, entry.number))
        if not here:
            self._empty.add(entry.number)
        under_way = sum(bool(vm.phase) for vm in here)
        free = AT_ONCE - under_way
        now = self._clock.monotonic()
        for vm in here:
            if free <= 0:
                return
            tries, next_at = self._tries.get((vm.id, entry.number), (0, now))
            if vm.phase or vm.observed not in ("running", "paused", "stopped") or now < next_at:
                continue
            if under_way and now < self._passed.get((vm.id, entry.number), now):
                continue
            try:
                found = await self._moving.begin(vm, "drain", explain=False)
            except (Conflict, NotFound, Unavailable) as error:
                log.info("VM %s stays on %s for now: %s", vm.name, entry.name, error.message)
                found = None
            if not isinstance(found, VMRow):
                # It may not go, or fits nowhere else; the next may. While another one moves this is
                # looked at again and again, and each time would be a search and a transaction.
                self._passed[vm.id, entry.number] = now + _WAITS.wait_s(0)
                continue
            # It is still here when this is read only if the move was given up.
            wait_s = _WAITS.wait_s(tries)
            self._tries[vm.id, entry.number] = tries + 1, now + wait_s
            log.info("draining %s: VM %s moves", entry.name, vm.name)
            free -= 1


def _drains(entry: HostEntry) -> bool:
    return entry.row.admin == "draining" and entry.row.health == "online"


def _vms_on(connection: Connection, host: int) -> list[VMRow]:
    return [VMRow(**row) for row in connection.execute(_HERE, {"on_host": host}).mappings()]
