"""The desired list as the agent has it: orders by VM, and the digest that sums it up.

A delta applies only to the list it was made for, and only if the result has the digest it
promises; otherwise the caller asks for the whole list. Nothing here touches a VM.
"""

from roost.wire.agentlink import (
    Delta,
    Desired,
    DesiredVM,
    Tombstone,
    digest_text,
    entry_hash,
    list_digest,
)

#: What the control plane wants of one VM on this host.
Order = DesiredVM | Tombstone


class DesiredList:
    """One list. `vms` and `tombstones` by the VM's id."""

    def __init__(self, desired: Desired) -> None:
        self.vms = {vm.id: vm for vm in desired.vms}
        self.tombstones = {tombstone.id: tombstone for tombstone in desired.tombstones}
        self.digest = desired.digest
        self.point = desired.point

    @staticmethod
    def read(desired: Desired) -> "DesiredList | None":
        """Return the list of a message, or None when its digest does not match."""
        return DesiredList(desired) if list_digest(desired) == desired.digest else None

    def changed(self, delta: Delta) -> "DesiredList | None":
        """Return the list after a delta, or None when the delta is not for this list."""
        if delta.base != self.digest:
            return None
        new = DesiredList(self.as_message())
        for vm_id in delta.dropped:
            new.vms.pop(vm_id, None)
            new.tombstones.pop(vm_id, None)
        for vm_id in delta.buried:
            new.tombstones.pop(vm_id, None)
        for tombstone in delta.tombstones:
            new.vms.pop(tombstone.id, None)
            new.tombstones[tombstone.id] = tombstone
        for vm in delta.vms:
            new.tombstones.pop(vm.id, None)
            new.vms[vm.id] = vm
        value = int(self.digest, 16)
        for vm_id in _touched(delta):
            value ^= self._share(vm_id) ^ new._share(vm_id)
        new.digest, new.point = digest_text(value), delta.point or self.point
        return new if new.digest == delta.digest else None

    def order(self, vm_id: str) -> Order | None:
        """Return what is wanted of one VM: the newer of order and tombstone."""
        vm, tombstone = self.vms.get(vm_id), self.tombstones.get(vm_id)
        if vm is None or tombstone is None:
            return vm or tombstone
        return vm if vm.generation > tombstone.generation else tombstone

    def ids(self) -> set[str]:
        """Return the ids of all VMs and tombstones on the list."""
        return self.vms.keys() | self.tombstones.keys()

    def as_message(self) -> Desired:
        """Return the list as a message, to store it."""
        vms, tombstones = list(self.vms.values()), list(self.tombstones.values())
        return Desired(self.digest, vms, tombstones, self.point)

    def _share(self, vm_id: str) -> int:
        value = 0
        if vm := self.vms.get(vm_id):
            value ^= entry_hash(vm_id, vm.generation)
        if tombstone := self.tombstones.get(vm_id):
            value ^= entry_hash(vm_id, tombstone.generation, tombstone=True)
        return value


def _touched(delta: Delta) -> set[str]:
    named = {vm.id for vm in delta.vms} | {tombstone.id for tombstone in delta.tombstones}
    return named | set(delta.dropped) | set(delta.buried)
