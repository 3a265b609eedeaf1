"""Delete VMs whose time is over: those with an `until` that has passed, in one process.

The room of such a VM is given back when its host has destroyed it, as with any other. Nothing is
ended by a clock that has jumped, nor by a ledger that may be a restored old copy: a VM that waits
there may run by now. VMs in doubt are ended once a host has said where they are.
"""

import logging
from collections.abc import Callable

from sqlalchemy import Connection, bindparam, exists, func, select

from roost.base.clock import Clock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.base.steady import SteadyWall
from roost.base.timestamps import timestamp
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.vms.deletion import remove_deleted
from roost.control.vms.lookup import relock
from roost.ledger.claims.capacity import RUN
from roost.ledger.schema.changes import CLAIMS, VM_SPECS, VMS
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import SPECIAL_CLAIM, claims, doubts, vms
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import NotHolder, Singleton

log = logging.getLogger("roost.expiring")

_LOOK_S = 1.0
#: VMs of each kind that one look ends.
_PIECE = 100
_OVER = (
    select(claims.c.vm)
    .join(vms, vms.c.id == claims.c.vm)
    .where(
        SPECIAL_CLAIM,
        claims.c.kind == RUN,
        claims.c.until_ms <= bindparam("now"),
        vms.c.desired != "absent",
        # Many of these must not keep the others out of the piece.
        ~exists().where(doubts.c.vm == claims.c.vm),
    )
    .order_by(claims.c.vm)
    .limit(_PIECE)
)
_NEXT = (
    select(func.min(claims.c.until_ms))
    .join(vms, vms.c.id == claims.c.vm)
    .where(SPECIAL_CLAIM, claims.c.kind == RUN, vms.c.desired != "absent")
)
_DOUBTED = select(doubts.c.vm)


class ExpiredVMs(Part):
    """Deletes VMs at their time."""

    singleton: Singleton
    look_s = _LOOK_S
    wakes = (VMS, VM_SPECS, CLAIMS)

    def __init__(
        self,
        store: Store,
        roster: Roster,
        clock: Clock,
        steady: SteadyWall,
        lineage: Lineage,
        singleton: Singleton,
        destroy: Callable[[Tx, VMRow], VMRow],
    ) -> None:
        self._store, self._roster, self._clock = store, roster, clock
        self._steady, self._lineage = steady, lineage
        self.singleton, self._destroy = singleton, destroy
        self._next_ms: int | None = 0  # when the next is over, as far as the last look has seen

    async def may_look(self) -> bool:
        """Allow looking only while clock and ledger can be believed: who is deleted stays so."""
        return self._steady.is_steady() and await self._lineage.is_sure()

    def examine(self, connection: Connection, found: Examination) -> None:
        """Tell the doctor that nothing is ended because the clock has jumped."""
        if trouble := self._steady.trouble():
            found.trouble("clock", trouble)

    def is_due(self) -> bool:
        """Say whether the time of a VM is over; the wall clock is asked each time, for it jumps."""
        return self._next_ms is not None and self._clock.wall_ms() >= self._next_ms

    async def look(self) -> None:
        """Delete the VMs whose time is over, those that still wait for a host as well."""
        now = self._clock.wall_ms()
        ends = {vm.id: self._end_of(vm) for vm in self._roster.waiting.values()}
        waiting = [vm for vm, until in ends.items() if until is not None and until <= now]

        def question(connection: Connection) -> tuple[list[str], int | None]:
            placed = connection.execute(_OVER, {"now": now}).scalars().all()
            doubted = set(connection.execute(_DOUBTED).scalars()) if waiting else set()
            over = [*placed, *[vm for vm in waiting if vm not in doubted][:_PIECE]]
            return over, now if placed else connection.execute(_NEXT).scalar()

        over, next_ms = await self._store.read(question)
        known = [until for until in (next_ms, *ends.values()) if until is not None]
        self._next_ms = min(known, default=None)
        # One at a time: VMs are locked before the hosts and groups of any.
        for vm_id in over:
            try:
                await self._store.write(lambda tx: self._end(tx, vm_id))  # noqa: B023
            except NotHolder:
                raise
            except (Conflict, NotFound, Unavailable) as error:
                log.info("VM %s is not ended yet: %s", vm_id, error.message)

    def _end_of(self, vm: VMRow) -> int | None:
        spec = self._roster.specs.get(vm.id)
        return None if spec is None else spec.until_ms

    def _end(self, tx: Tx, vm_id: str) -> None:
        self.singleton.check(tx)
        vm = relock(tx, vm_id)
        if vm.desired == "absent":
            return
        spec = self._roster.specs.read(tx.connection, [vm]).get(vm.id)
        if spec is None or spec.until_ms is None or spec.until_ms > tx.at_ms:
            return
        note = f"it was to live until {timestamp(spec.until_ms)}"
        tx.event("vm.expired", f"vm/{vm.id}", {}, project=vm.project, note=note)
        if vm.host is None:
            remove_deleted(tx, vm, note)
        else:
            self._destroy(tx, vm)
