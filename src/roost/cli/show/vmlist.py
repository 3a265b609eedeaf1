"""`roost vm list`: VMs as columns, names or a document, quickly however many."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from roost.base.units import format_bytes, format_cpu
from roost.cli.show.columns import Cell, Column, Listing, write_list
from roost.cli.show.listings import STATE_STYLES, age, remark
from roost.wire import bodies

COLUMNS = (
    Column("name", style=lambda text: "bold"),
    Column("state", style=lambda text: STATE_STYLES.get(text, "yellow")),
    Column("host"),
    Column("kind", style=lambda text: "magenta" if text == "virtual" else ""),
    Column("cpu", right=True),
    Column("memory", right=True),
    Column("disk", right=True),
    Column("project"),
    Column("age", right=True),
    Column("priority", right=True, wide=True),
    Column("restart", wide=True),
    Column("strategy", wide=True),
    Column("labels", wide=True),
    Column("id", wide=True),
    Column("", style=lambda text: "dim"),
)


def rows(listed: Sequence[bodies.VMBody], now: datetime) -> Iterator[Sequence[Cell]]:
    """Yield the cells of each VM."""
    ages: dict[str, str] = {}  # VMs of a batch were made in the same moment
    for vm in listed:
        demand = vm.demand
        kind = "virtual" if vm.virtual else "real" if vm.host else "-"
        old = ages.get(vm.created_at) or ages.setdefault(vm.created_at, age(vm.created_at, now))
        labels = ",".join(f"{key}={value}" for key, value in vm.labels.items())
        yield (
            (vm.name, vm.name),
            (vm.state, vm.state),
            (vm.host or "", vm.host or "-"),
            (kind, kind),
            (demand.cpu_milli, format_cpu(demand.cpu_milli)),
            (demand.memory_bytes, format_bytes(demand.memory_bytes)),
            (demand.disk_bytes, format_bytes(demand.disk_bytes) if demand.disk_bytes else "-"),
            (vm.project, vm.project),
            (vm.created_at, old),
            (vm.priority, str(vm.priority)),
            (vm.restart, vm.restart),
            (vm.strategy, vm.strategy),
            (labels, labels or "-"),
            (vm.id, vm.id),
            ("", remark(vm)),
        )


def write_vms(listed: Sequence[bodies.VMBody], listing: Listing) -> None:
    """Write VMs, one a line."""
    write_list(COLUMNS, rows(listed, datetime.now(UTC)), listing)
