"""The agent's own books of capacity; they have the last word on what starts here.

Capacity comes from the host's inventory: (total - reserve) x ratio. Committed is, per VM and
resource, the larger of what the driver shows and what the agent has written down. Stopped VMs and
incoming copies keep their share; of a VM that has moved away only the disk is left. What cannot
be read is full.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roost.agent.drivers.base import LocalVM
from roost.agent.store import Record
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import AmountInfo, DesiredVM, Inventory

Amounts = dict[str, int]

_NOTHING: Amounts = {}


class Shortfall(NamedTuple):
    """One resource that does not suffice; `free` None means that it could not be read."""

    resource: str
    needed: int
    free: int | None

    def __str__(self) -> str:
        free = "unknown" if self.free is None else self.free
        return f"{self.resource}: needs {self.needed}, free {free}"


def amounts_of(vm: DesiredVM | LocalVM) -> Amounts:
    """Return the amounts of one VM's order, by resource."""
    amounts = {
        "cpu_milli": vm.cpu_milli,
        "memory_bytes": vm.memory_bytes,
        "disk_bytes": vm.disk_bytes,
        **vm.extended,
    }
    if isinstance(vm, LocalVM) and vm.state == "moved":
        return {"disk_bytes": vm.disk_bytes}
    return amounts


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """Return the larger of two vectors, resource by resource."""
    return {
        name: max(one.get(name, 0), other.get(name, 0))
        for name in sorted(one.keys() | other.keys())
    }


def capacity_of(amount: AmountInfo) -> int | None:
    """Return the host's capacity of a resource, or None when it cannot be read."""
    if amount.total is None:
        return None
    return max(0, amount.total - amount.reserve) * amount.ratio_milli // 1000


class HostCapacity:
    """The capacity of the host, checked against the VMs committed to it."""

    def __init__(self, inventory: Inventory | None) -> None:
        self._inventory = inventory
        self._capacity: dict[str, int | None] = {}
        if inventory is not None:
            self._capacity = {
                "cpu_milli": capacity_of(inventory.cpu_milli),
                "memory_bytes": capacity_of(inventory.memory_bytes),
                "disk_bytes": capacity_of(inventory.disk_bytes),
                **{name: capacity_of(amount) for name, amount in inventory.extended.items()},
            }

    def shortfalls(
        self, vm: DesiredVM, committed: Mapping[str, Mapping[str, int]]
    ) -> list[Shortfall]:
        """Return the resources that a VM lacks; `committed` has every VM here, itself included.

        Only growth needs room: a VM that is here already keeps what it has.
        """
        has = committed.get(vm.id)
        short = [
            shortfall
            for name, amount in amounts_of(vm).items()
            if (shortfall := self._short(name, amount, has or _NOTHING, committed.values()))
        ]
        limit = self._inventory.max_vms if self._inventory else None
        if has is None and limit is not None and len(committed) >= limit:
            short.append(Shortfall("vms", 1, limit - len(committed)))
        return short

    def devices_taken(self, vm: DesiredVM, here: Iterable[LocalVM]) -> list[int]:
        """Return the devices of a VM's order that other VMs hold, or that do not exist."""
        devices = self._inventory.devices if self._inventory else []
        held = {number for other in here if other.id != vm.id for number in other.devices}
        return [
            number
            for number in vm.devices
            if not 0 <= number < len(devices) or (number in held and not devices[number].shareable)
        ]

    def _short(
        self, name: str, amount: int, has: Mapping[str, int], committed: Iterable[Mapping[str, int]]
    ) -> Shortfall | None:
        growth = amount - has.get(name, 0)
        if growth <= 0:
            return None
        capacity = self._capacity.get(name)
        if capacity is None:
            return Shortfall(name, growth, None)
        free = capacity - sum(each.get(name, 0) for each in committed)
        return Shortfall(name, growth, free) if growth > free else None


class Reserved:
    """Capacity together with all that takes room here: what is shown, recorded and reserved.

    A reservation holds from before a step begins until it is seen what the step has left behind,
    so that two starts side by side never count on the same room.
    """

    def __init__(self, local: Mapping[str, LocalVM], records: Mapping[str, Record]) -> None:
        self.capacity = HostCapacity(None)
        self._local = local
        self._records = records
        self._reservations: dict[str, Amounts] = {}

    def reserve(self, vm: DesiredVM) -> None:
        """Reserve the room for a VM, or raise with what is missing."""
        if short := self.capacity.shortfalls(vm, self.committed()):
            message = f"no room here: {'; '.join(map(str, short))}"
            raise DriverError("capacity", "insufficient_resources", message)
        if taken := self.capacity.devices_taken(vm, self._local.values()):
            raise DriverError("capacity", "device_taken", f"devices {taken} are not free here")
        self._reservations[vm.id] = amounts_of(vm)

    def release(self, vm_id: str) -> None:
        """Release a VM's reservation: the VM is seen now, or is gone."""
        self._reservations.pop(vm_id, None)

    def committed(self) -> dict[str, Amounts]:
        """Return what every VM here takes, the largest of what is known of it."""
        committed = {}
        for vm_id in self._local.keys() | self._reservations.keys():
            local, record = self._local.get(vm_id), self._records.get(vm_id)
            amounts = amounts_of(local) if local else {}
            if record and local and local.state != "moved":
                amounts = larger(amounts, record.amounts)
            committed[vm_id] = larger(amounts, self._reservations.get(vm_id, {}))
        return committed
