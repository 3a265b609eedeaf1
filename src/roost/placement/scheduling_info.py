"""The six lines that describe a host to an operator: committed of capacity, in 2^30 bytes."""

from roost.base.units import GIB, format_cpu
from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, DISK, MEMORY
from roost.model.hosts import Admin, Health


def scheduling_info(fleet: Fleet, host: str) -> str:
    """Return the block of one host; an unknown host is NotFound."""
    row = fleet.row(host)
    arrays = fleet.hosts.arrays
    committed, capacity = arrays.committed[row].tolist(), arrays.capacity[row].tolist()
    status = Health(fleet.hosts.health[row]).label
    admin = Admin(fleet.hosts.admin[row])
    if admin is not Admin.OPEN:
        status += f", {admin.label}"

    def line(name: str, column: int, used: str, whole: str) -> str:
        share = 100 * committed[column] / capacity[column] if capacity[column] else 0.0
        return f"{name}: {used}/{whole} ({share:.1f}% used)"

    def gib(amount: int) -> str:
        return f"{amount / GIB:.1f} GB"

    return "\n".join(
        (
            f"Agent: {host}",
            f"Status: {status}",
            line("CPU", CPU, format_cpu(committed[CPU]), format_cpu(capacity[CPU])),
            line("Memory", MEMORY, gib(committed[MEMORY]), gib(capacity[MEMORY])),
            line("Disk", DISK, gib(committed[DISK]), gib(capacity[DISK])),
            f"Running VMs: {int(arrays.vm_count[row])}",
        )
    )
