"""Empty hosts that drain: one move at a time on each; VMs that fit nowhere else stay, reported."""

import logging

from sqlalchemy import Connection, select

from roost.base.clock import Clock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.finding import relock
from roost.control.liveness import Timers
from roost.control.moving import Moving, abandon_move
from roost.control.placing import Lost
from roost.control.roster import HostEntry, Roster
from roost.control.singleton import Singleton
from roost.ledger.rows import VMRow
from roost.ledger.store import Store
from roost.ledger.tables import claims, vms
from roost.ledger.transaction import Tx

log = logging.getLogger("roost.drain")


class Drain:
    """Moves VMs off draining hosts, and gives up moves whose target is lost."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        moving: Moving,
        singleton: Singleton,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._store, self._roster, self._moving = store, roster, moving
        self._singleton, self._clock, self._timers = singleton, clock, timers
        self._begun: dict[tuple[str, int, str], float] = {}  # since when a move is in its phase

    async def look(self) -> None:
        """Begin the next move of every draining host."""
        for entry in list(self._roster.hosts.values()):
            if entry.row.admin == "draining" and entry.row.health == "online":
                await self._next(entry)
        await self._abandon_lost()
        await self._abandon_late()

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
                found = await self._moving.begin(vm, "drain", explain=False)
            except (Conflict, NotFound, Unavailable) as error:
                log.info("VM %s stays on %s for now: %s", vm.name, entry.name, error.message)
                continue
            if not isinstance(found, VMRow):
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
                await self._give_up(vm_id, "its target is offline")
            except (Conflict, NotFound, Lost):
                continue

    async def _abandon_late(self) -> None:
        """Give up moves that take too long: to get ready, or six times as long to be sent.

        That is safe at any time: a copy that was sent only waits until the ledger says otherwise.
        """
        query = select(vms.c.id, vms.c.generation, vms.c.phase).where(
            vms.c.phase.in_(("preparing", "moving"))
        )
        found = await self._store.read(
            lambda connection: [tuple(row) for row in connection.execute(query)]
        )
        now = self._clock.monotonic()
        self._begun = {key: self._begun.get(key, now) for key in found}
        for (vm_id, _, phase), since in self._begun.items():
            limit = self._timers.move_s * (1 if phase == "preparing" else 6)
            if now - since >= limit:
                try:
                    await self._give_up(vm_id, f"it was {phase} for {limit:.0f} s")
                except (Conflict, NotFound, Lost):
                    continue

    async def _give_up(self, vm_id: str, why: str) -> None:
        def change(tx: Tx) -> None:
            self._singleton.check(tx)
            abandon_move(tx, relock(tx, vm_id), why)

        await self._store.write(change)
