"""Delete VMs whose time is over: those with an `until` that has passed, in one process.

The room of such a VM is given back when its host has destroyed it, as with any other.
"""

from collections.abc import Callable

from sqlalchemy import Connection, bindparam, select

from roost.base.clock import Clock
from roost.base.steady import SteadyWall
from roost.base.timestamps import timestamp
from roost.control.memory.roster import Roster
from roost.control.vms.deletion import remove_deleted
from roost.ledger.capacity import RUN
from roost.ledger.examination import Examination
from roost.ledger.rows import VMRow
from roost.ledger.store import Store
from roost.ledger.tables import SPECIAL_CLAIM, claims, vms
from roost.ledger.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

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
    )
    .order_by(claims.c.vm)
    .limit(_PIECE)
)


class ExpiredVMs(Part):
    """Deletes VMs at their time."""

    singleton: Singleton
    look_s = _LOOK_S

    def __init__(
        self,
        store: Store,
        roster: Roster,
        clock: Clock,
        steady: SteadyWall,
        singleton: Singleton,
        destroy: Callable[[Tx, VMRow], VMRow],
    ) -> None:
        self._store, self._roster, self._clock = store, roster, clock
        self._steady, self.singleton, self._destroy = steady, singleton, destroy

    async def may_look(self) -> bool:
        """Allow looking only while the wall clock can be believed: who is deleted stays so."""
        return self._steady.is_steady()

    def examine(self, connection: Connection, found: Examination) -> None:
        """Tell the doctor that nothing is ended because the clock has jumped."""
        if trouble := self._steady.trouble():
            found.trouble("clock", trouble)

    async def look(self) -> None:
        """Delete the VMs whose time is over, those that still wait for a host as well."""
        now = self._clock.wall_ms()
        waiting = [vm.id for vm in self._roster.waiting.values() if self._is_over(vm, now)]
        query = {"now": now}
        placed = await self._store.read(lambda found: found.execute(_OVER, query).scalars().all())
        # One at a time: VMs are locked before the hosts and groups of any.
        for vm_id in (*placed, *waiting[:_PIECE]):
            await self._store.write(lambda tx: self._end(tx, vm_id))  # noqa: B023

    def _is_over(self, vm: VMRow, now: int) -> bool:
        spec = self._roster.specs.get(vm.id)
        return spec is not None and spec.until_ms is not None and spec.until_ms <= now

    def _end(self, tx: Tx, vm_id: str) -> None:
        self.singleton.check(tx)
        row = tx.find(vms, lock=True, id=vm_id)
        if row is None or row["desired"] == "absent":
            return
        vm = VMRow(**row)
        spec = self._roster.specs.read(tx.connection, [vm]).get(vm.id)
        if spec is None or spec.until_ms is None or spec.until_ms > tx.at_ms:
            return
        note = f"it was to live until {timestamp(spec.until_ms)}"
        tx.event("vm.expired", f"vm/{vm.id}", {}, project=vm.project, note=note)
        if vm.host is None:
            remove_deleted(tx, vm, note)
        else:
            self._destroy(tx, vm)
