"""What a move left on its source when a restored ledger has forgotten the move: destroyed, late.

The source of a move keeps what it sent until it gets a tombstone. If the ledger is an old copy that
knows nothing of the move, and the source is away while the VM is found at its target, nobody writes
that tombstone: for all the ledger knows the silent host may have the only copy. When it is back it
holds the remains. By its own word the VM is not there, and the VM's home has said that it has the
VM: both together are what a tombstone at the end of any move rests on.
"""

import msgspec
from sqlalchemy import Connection, select

from roost.control.memory.restore_detect import Lineage
from roost.control.vms.deletion import order_destruction
from roost.control.vms.lookup import relock
from roost.ledger.changes import HOSTS, Changes
from roost.ledger.rows import Changes as RowChanges
from roost.ledger.rows import Event, VMRow
from roost.ledger.store import Store
from roost.ledger.tables import hosts, tombstones, vms
from roost.ledger.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

_MOVED = "moved"
#: What says that a VM's home has it.
_HAS = ("running", "paused", "stopped")
_HELD = select(hosts.c.number, hosts.c.held).where(hosts.c.held.contains(f'"{_MOVED}"'))


class _Held(msgspec.Struct):
    """What is needed of a held VM, as any release has stored it."""

    id: str
    seen: str = ""


class Remains(Part):
    """Orders hosts to destroy what they hold of VMs that have moved elsewhere."""

    follows = (HOSTS,)
    look_s = 5.0
    singleton: Singleton

    def __init__(self, store: Store, lineage: Lineage, singleton: Singleton) -> None:
        self._store, self._lineage, self.singleton = store, lineage, singleton
        self._held: dict[int, list[str]] = {}  # VMs that hosts hold, and have sent elsewhere

    def load(self, connection: Connection) -> None:
        """Read which hosts hold remains of moves."""
        self._held = {}
        for number, text in connection.execute(_HELD):
            self._take(number, text)

    def follow(self, event: Event, changes: Changes) -> None:
        """Note what hosts hold from now on."""
        for number, row in changes.of(HOSTS).items():
            self._take(int(number), "" if row is None else row.held)

    def _take(self, number: int, text: str) -> None:
        try:
            held = msgspec.json.decode(text, type=list[_Held]) if text else []
        except msgspec.MsgspecError:  # doctor says that it cannot be read
            held = []
        if sent := [each.id for each in held if each.seen == _MOVED]:
            self._held[number] = sent
        else:
            self._held.pop(number, None)

    async def may_look(self) -> bool:
        """Allow looking only while something is held, and the ledger is not an old copy."""
        return bool(self._held) and await self._lineage.is_sure()

    async def look(self) -> None:
        """Order the destruction of remains of VMs that their homes have."""
        for number, vm_id in await self._store.read(self._leftovers):
            await self._store.write(lambda tx: self._destroy(tx, number, vm_id))  # noqa: B023

    def _leftovers(self, connection: Connection) -> list[tuple[int, str]]:
        asked = sorted({vm_id for sent in self._held.values() for vm_id in sent})
        found = connection.execute(select(vms).where(vms.c.id.in_(asked))).mappings()
        known = {row["id"]: VMRow(**row) for row in found}
        buried = {
            (row.host, row.vm)
            for row in connection.execute(
                select(tombstones.c.host, tombstones.c.vm).where(tombstones.c.vm.in_(asked))
            )
        }
        return [
            (number, vm_id)
            for number, sent in sorted(self._held.items())
            for vm_id in sent
            if (number, vm_id) not in buried and vm_id in known and _is_away(known[vm_id], number)
        ]

    def _destroy(self, tx: Tx, number: int, vm_id: str) -> None:
        self.singleton.check(tx)
        vm = relock(tx, vm_id)
        if not _is_away(vm, number):
            return
        changes = RowChanges()
        order_destruction(tx, vm, number, changes)
        note = "left by a move that a restored ledger had forgotten"
        tx.event("vm.remains_found", f"vm/{vm_id}", changes, project=vm.project, note=note)


def _is_away(vm: VMRow, number: int) -> bool:
    """Say whether a VM's home, another host, has said since its last order that it has the VM."""
    settled = vm.phase == "" and vm.observed_generation >= vm.generation
    return settled and vm.observed in _HAS and vm.host is not None and vm.host != number
