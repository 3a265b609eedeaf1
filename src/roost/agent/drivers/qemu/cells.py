"""VMs on NUMA cells: memory from the cells of the order, vCPUs on their processors.

An order names cells by their positions in the host's inventory; the kernel has numbers of its own.
On a host with one cell there is nothing to bind. QEMU binds the memory itself; its threads are
bound from here, before the guest executes, and threads that they start later follow them.
"""

import os
from contextlib import suppress
from pathlib import Path

from roost.hostkit.failures import DriverError
from roost.hostkit.machine.sysfs import cpu_list, read_text
from roost.wire.agentlink import DesiredVM

_NODES = Path("/sys/devices/system/node")


def nodes_of(vm: DesiredVM, numbers: list[int]) -> tuple[int, ...]:
    """Return the kernel's numbers of an order's cells; none when there is nothing to bind."""
    if not vm.cells or len(numbers) < 2:
        return ()
    try:
        return tuple(sorted(numbers[cell] for cell in vm.cells))
    except IndexError:
        text = f"{vm.name} is placed on the cells {vm.cells}; this host has {len(numbers)}"
        raise DriverError("permanent", "no_cell", text) from None


def bind_threads(pid: int, nodes: tuple[int, ...], root: Path = _NODES) -> None:
    """Let every thread of a process run on the processors of some cells only; blocks."""
    cpus: set[int] = set()
    for node in nodes:
        cpus |= cpu_list(read_text(root / f"node{node}" / "cpulist")) or set()
    if not cpus:
        raise DriverError("transient", "not_bound", f"the cells {nodes} have no processors")
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cpus)
