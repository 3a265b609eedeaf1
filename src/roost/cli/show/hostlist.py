"""`roost host list`: hosts as columns, names or a document."""

from collections.abc import Callable, Iterator, Sequence

from roost.base.units import format_bytes, format_cpu
from roost.cli.show.columns import Cell, Column, Listing, write_list
from roost.cli.show.listings import STATE_STYLES
from roost.wire import bodies


def _state(text: str) -> str:
    return STATE_STYLES.get(text, "bold red" if text == "unusable" else "yellow")


COLUMNS = (
    Column("name", style=lambda text: "bold"),
    Column("health", style=_state),
    Column("admin", style=_state),
    Column("driver", style=lambda text: "magenta" if text == "virtual" else ""),
    Column("zone"),
    Column("rack"),
    Column("VMs", right=True),
    Column("cpu", right=True),
    Column("memory", right=True),
    Column("disk", right=True),
    Column("taints", wide=True),
    Column("labels", wide=True),
)


def rows(listed: Sequence[bodies.HostBody]) -> Iterator[Sequence[Cell]]:
    """Yield the cells of each host; amounts are sorted by what is committed."""
    for host in listed:
        health = "unusable" if host.unusable else host.health
        admin = ", ".join([host.admin, *conditions(host)])
        driver = "virtual" if host.virtual else host.driver
        labels = ",".join(f"{key}={value}" for key, value in host.labels.items())
        taints = ",".join(taint_text(each) for each in host.taints)
        yield (
            (host.name, host.name),
            (health, health),
            (admin, admin),
            (driver, driver),
            (host.zone or "", host.zone or "-"),
            (host.rack or "", host.rack or "-"),
            (host.vms, str(host.vms)),
            _share(host.cpu_milli, format_cpu),
            _share(host.memory_bytes, format_bytes),
            _share(host.disk_bytes, format_bytes),
            (taints, taints or "-"),
            (labels, labels or "-"),
        )


def conditions(host: bodies.HostBody) -> list[str]:
    """Return what a host says of itself that keeps VMs away."""
    found = (taint.get("key", "") for taint in host.taints)
    return [key.removeprefix("roost/") for key in found if key.startswith("roost/")]


def taint_text(taint: dict[str, str]) -> str:
    """Return a taint as it is typed."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _share(found: bodies.HostAmounts, write: Callable[[int], str]) -> Cell:
    return found.committed, f"{write(found.committed)} / {write(found.capacity)}"


def write_hosts(listed: Sequence[bodies.HostBody], listing: Listing) -> None:
    """Write hosts, one a line."""
    write_list(COLUMNS, rows(listed), listing)
