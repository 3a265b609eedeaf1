"""Empty hosts that drain: one move at a time on each; VMs that fit nowhere else stay, reported."""

import logging

from sqlalchemy import Connection, select

from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.finding import relock
from roost.control.moving import Moving, abandon_move
from roost.control.placing import Lost
from roost.control.roster import HostEntry, Roster
from roost.control.singleton import Singleton
from roost.ledger.rows import VMRow
from roost.ledger.store import Store
from roost.ledger.tables import claims, vms
from roost.ledger.transaction import Tx
from roost.model.flow import Rejection

log = logging.getLogger("roost.drain")


class Drain:
    """Moves VMs off draining hosts, and gives up moves whose target is lost."""

    def __init__(self, store: Store, roster: Roster, moving: Moving, singleton: Singleton) -> None:
        self._store, self._roster, self._moving = store, roster, moving
        self._singleton = singleton

    async def look(self) -> None:
        """Begin the next move of every draining host."""
        for entry in list(self._roster.hosts.values()):
            if entry.row.admin == "draining" and entry.row.health == "online":
                await self._next(entry)
        await self._abandon_lost()

    async def _next(self, entry: HostEntry) -> None:
        def question(connection: Connection) -> list[VMRow]:
            query = select(vms).where(vms.c.host == entry.number, vms.c.desired != "absent")
            query = query.order_by(vms.c.priority.desc(), vms.c.id)
            return [VMRow(**row) for row in connection.execute(query).mappings()]

        def landing(connection: Connection) -> set[int]:
            query = select(vms.c.host).join(claims, claims.c.vm == vms.c.id)
            query = query.where(claims.c.host == entry.number, claims.c.kind == "hold")
            return set(connection.execute(query.where(vms.c.phase == "landing")).scalars())

        here = await self._store.read(question)
        # One at a time, and a move is over when its target has reported; one that is lost may not.
        arriving = [self._roster.hosts.get(host) for host in await self._store.read(landing)]
        if any(vm.phase for vm in here) or any(e and e.row.health != "offline" for e in arriving):
            return
        for vm in here:
            if vm.observed not in ("running", "stopped"):
                continue
            try:
                found = await self._moving.begin(vm, "drain")
            except (Conflict, NotFound, Unavailable) as error:
                log.info("VM %s stays on %s for now: %s", vm.name, entry.name, error.message)
                continue
            if isinstance(found, Rejection):
                continue  # fits nowhere else; the next may
            log.info("draining %s: VM %s moves", entry.name, vm.name)
            return

    async def _abandon_lost(self) -> None:
        """Give up moves whose target is offline: until it is the VM's host, nothing runs there."""
        lost = [n for n, entry in self._roster.hosts.items() if entry.row.health == "offline"]
        if not lost:
            return
        query = select(vms.c.id).where(vms.c.target.in_(lost))
        waiting = await self._store.read(lambda c: list(c.execute(query).scalars()))
        for vm_id in waiting:
            try:
                await self._store.write(lambda tx: self._abandon(tx, vm_id))  # noqa: B023
            except (Conflict, NotFound, Lost):
                continue

    def _abandon(self, tx: Tx, vm_id: str) -> None:
        self._singleton.check(tx)
        abandon_move(tx, relock(tx, vm_id), "its target is offline")
