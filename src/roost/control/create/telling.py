"""Tell operators of creates that were kept: the lines of the log that they know."""

import logging
from collections.abc import Sequence
from functools import lru_cache

from roost.base.units import GIB, format_cpu
from roost.control.create.pending import PendingCreate
from roost.fleet.fleet import Fleet
from roost.fleet.layout import BASE, CPU, DISK, MEMORY

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
        if not ask.line:
            note_lines(fleet, [ask])
        lines.append(ask.line)
    log.log(logging.INFO if single else logging.DEBUG, LINES, "\n".join(lines))


def note_lines(fleet: Fleet, asks: Sequence[PendingCreate]) -> None:
    """Note where creates that were just charged in this order went, each as it was charged.

    What a host had committed after an earlier one is what it has now, less what came later.
    """
    placed = [(ask, ask.placement) for ask in asks if ask.placement is not None]
    if not placed:
        return
    rows = [placement.host_row for _, placement in placed]
    arrays = fleet.hosts.arrays
    committed = dict(zip(rows, arrays.committed[rows, :BASE].tolist(), strict=True))
    limits = arrays.capacity[rows, :BASE].tolist()
    for (ask, placement), capacity in zip(reversed(placed), reversed(limits), strict=True):
        now = committed[placement.host_row]
        ask.line = _selected_line(placement.host, ask.body.name, now, capacity)
        demand = ask.request.demand
        now[CPU] -= demand.cpu_milli
        now[MEMORY] -= demand.memory_bytes
        now[DISK] -= demand.disk_bytes


def _selected_line(host: str, vm: str, committed: Sequence[int], capacity: Sequence[int]) -> str:
    """Say where a VM went: committed after this placement, of capacity, in 2^30 bytes."""
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
