"""The hosts and VMs that the benchmark is made of; everything follows from a number."""

from roost.base.units import GIB
from roost.ledger.schema.rows import ClaimRow, VMRow
from roost.wire.agentlink import PROTOCOL, AmountInfo, Hello, Inventory

#: Cores and GiB of memory; a host has 20 GiB of disk for each core, a VM asks for 10.
SHAPES = ((64, 256), (96, 384), (128, 512), (128, 1024))
FLAVORS = ((1, 1), (1, 2), (2, 4), (4, 8))
ZONES = ("a", "b", "c")
PROJECT = "default"


def host_name(number: int) -> str:
    """Return the name of the host with this number, which counts from 1."""
    return f"host-{number:05d}"


def hello(number: int) -> Hello:
    """Return how the agent of a host introduces itself, each time the same."""
    cores, memory = SHAPES[number % len(SHAPES)]
    inventory = Inventory(
        cpu_milli=AmountInfo(cores * 1000),
        memory_bytes=AmountInfo(memory * GIB),
        disk_bytes=AmountInfo(cores * 20 * GIB),
        zone=ZONES[number % len(ZONES)],
        rack=f"rack-{number // 40}",
        labels={"tier": "gold" if number % 5 == 0 else "silver"},
        virtual=True,
    )
    return Hello(
        protocol=PROTOCOL,
        host=host_name(number),
        instance=f"bench-{number}",
        version="bench",
        inventory=inventory,
        digest="0" * 16,
    )


def vm_name(number: int) -> str:
    """Return the name of a VM."""
    return f"web-{number:07d}"


def create_body(number: int) -> dict[str, object]:
    """Return the body that asks for a VM."""
    cores, memory = FLAVORS[number % len(FLAVORS)]
    demand = {"cpu": cores, "memory": f"{memory}GiB", "disk": f"{cores * 10}GiB"}
    return {"name": vm_name(number), "demand": demand}


def placed_rows(vm_id: str, number: int, host: int, at_ms: int) -> tuple[VMRow, ClaimRow]:
    """Return the rows of a VM that is on a host and was never heard of."""
    cores, memory = FLAVORS[number % len(FLAVORS)]
    name = vm_name(number)
    cpu_milli, memory_bytes, disk_bytes = cores * 1000, memory * GIB, cores * 10 * GIB
    vm = VMRow(
        id=vm_id,
        project=PROJECT,
        name=name,
        labels="",
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        disk_bytes=disk_bytes,
        strategy="least_loaded",
        priority=0,
        on_no_fit="fail",
        restart="here",
        desired="running",
        generation=1,
        host=host,
        created_ms=at_ms,
    )
    claim = ClaimRow(
        id=f"{vm_id}:run",
        vm=vm_id,
        host=host,
        kind="run",
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        disk_bytes=disk_bytes,
    )
    return vm, claim
