"""Remains of moves that never arrived: destroyed where they are held, once the VM is at home.

A host that was away while its VM was settled after a restore may come back with an incoming copy
whose process ended before it took over. It is on no list, so the agent holds it; and the roll call
that would have ordered its destruction is over. Such a copy has never executed, so it is never the
newest: no operator need decide about it. It goes once the VM's own host has said that it has the VM
as ordered, as after any move.
"""

from collections.abc import Iterator, Sequence

import msgspec
from sqlalchemy import select

from roost.control.memory.held_copies import StoredHeld, read_held
from roost.control.memory.restore_detect import Lineage, is_doubted
from roost.control.memory.roster import Roster
from roost.control.vms.deletion import has_it_at_home, order_destruction
from roost.ledger.schema.rows import Changes, VMRow
from roost.ledger.schema.tables import tombstones, vms
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

#: Copies that are looked at in one transaction, and at one look.
_MOST_TOGETHER = 100


def _key(held: tuple[int, StoredHeld]) -> tuple[int, str]:
    return held[0], held[1].id


class Remains(Part):
    """Orders hosts to destroy what they hold of moves that never arrived."""

    singleton: Singleton
    look_s = 10.0

    def __init__(
        self, store: Store, roster: Roster, lineage: Lineage, singleton: Singleton
    ) -> None:
        self._store, self._roster, self._lineage = store, roster, lineage
        self.singleton = singleton
        self._last = (-1, "")  # host and VM that were looked at last

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    def is_due(self) -> bool:
        """Say whether a host holds what is left of a move."""
        return next(self._held(), None) is not None

    async def look(self) -> None:
        """Order the destruction of remains whose VM is at home."""
        found = sorted(self._held(), key=_key)
        if not found:
            return
        # In turn: those of which nothing is known yet must not keep the others waiting.
        turn = [each for each in found if _key(each) > self._last] or found
        some = turn[:_MOST_TOGETHER]
        self._last = _key(some[-1])
        await self._store.write(lambda tx: self._order(tx, some))

    def _held(self) -> Iterator[tuple[int, StoredHeld]]:
        for number, entry in self._roster.hosts.items():
            if '"lost":true' in entry.row.held:  # else nothing is decoded
                try:
                    held = read_held(entry.row)
                except msgspec.MsgspecError:
                    continue  # doctor says so
                yield from ((number, copy) for copy in held if copy.lost)

    def _order(self, tx: Tx, found: Sequence[tuple[int, StoredHeld]]) -> None:
        self.singleton.check(tx)
        ids = sorted({copy.id for _, copy in found})
        query = select(vms).where(vms.c.id.in_(ids)).order_by(vms.c.id).with_for_update()
        known = {row["id"]: VMRow(**row) for row in tx.rows(query)}
        for host, copy in found:
            vm = known.get(copy.id)
            if vm is None or host in (vm.host, vm.target) or not has_it_at_home(vm):
                continue
            if copy.generation > vm.generation or is_doubted(tx, vm.id):
                continue
            if tx.find(tombstones, vm=vm.id, host=host) is not None:
                continue  # it is ordered already
            changes: Changes = {}
            order_destruction(tx, vm, host, changes)
            note = f"host {self._roster.host_name(host)} holds what is left of a move"
            tx.event("vm.destroy_asked", f"vm/{vm.id}", changes, project=vm.project, note=note)
