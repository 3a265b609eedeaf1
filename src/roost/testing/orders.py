"""Orders for agents in as few words as a test can do with."""

from roost.base.units import GIB
from roost.wire.agentlink import Desired, DesiredVM, Tombstone, list_digest


def vm(vm_id: str = "vm-1", generation: int = 1, **changes: object) -> DesiredVM:
    """Return an order for a small running VM."""
    given: dict[str, object] = {
        "id": vm_id,
        "name": vm_id,
        "project": "default",
        "generation": generation,
        "power": "running",
        "cpu_milli": 1000,
        "memory_bytes": GIB,
        "disk_bytes": GIB,
    }
    return DesiredVM(**{**given, **changes})  # type: ignore[arg-type]


def listing(*orders: DesiredVM | Tombstone) -> Desired:
    """Return a list with its digest."""
    vms = [order for order in orders if isinstance(order, DesiredVM)]
    tombstones = [order for order in orders if isinstance(order, Tombstone)]
    desired = Desired("", vms, tombstones)
    desired.digest = list_digest(desired)
    return desired
