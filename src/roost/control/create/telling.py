"""Tell operators of creates that were kept: the lines of the log that they know."""

import logging
from functools import lru_cache

from roost.base.units import GIB, format_cpu
from roost.control.create.pending import PendingCreate
from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, DISK, MEMORY

log = logging.getLogger("roost.admit")

#: Several lines in one record: those of a commit are written together.
LINES = "%s"


def tell_kept(fleet: Fleet, kept: list[PendingCreate], asked: int) -> None:
    """Log what was kept: two lines for a VM that was asked for alone, one for a batch."""
    single = kept[0].done is not None
    if not single:
        log.info("Placed %d of %d VMs of a batch", len(kept), asked)
        if not log.isEnabledFor(logging.DEBUG):
            return
    lines = []
    for ask in kept:
        if ask.placement is None:
            why = ask.rejection.message if ask.rejection is not None else ""
            lines.append(f"VM '{ask.body.name}' waits: {why}")
            continue
        lines.append(f"Scheduling VM '{ask.body.name}' using {ask.strategy} strategy")
        if ask.line:
            lines.append(ask.line)
        else:
            at, host = ask.placement.host_row, ask.placement.host
            lines.append(selected_line(fleet, at, host, ask.body.name))
    log.log(logging.INFO if single else logging.DEBUG, LINES, "\n".join(lines))


def selected_line(fleet: Fleet, row: int, host: str, vm: str) -> str:
    """Say where a VM went: committed after this placement, of capacity, in 2^30 bytes."""
    committed = fleet.hosts.arrays.committed[row].tolist()
    capacity = fleet.hosts.arrays.capacity[row].tolist()
    return (
        f"Selected agent '{host}' for VM '{vm}' - "
        f"CPU: {format_cpu(committed[CPU])}/{format_cpu(capacity[CPU])}, "
        f"Memory: {_gib(committed[MEMORY])}/{_gib(capacity[MEMORY])}, "
        f"Disk: {_gib(committed[DISK])}/{_gib(capacity[DISK])}"
    )


@lru_cache(maxsize=4096)
def _gib(amount: int) -> str:
    """Write 2^30 bytes as GB with at most one decimal, the way that line has always been read."""
    return f"{amount / GIB:.1f}".removesuffix(".0") + "GB"
