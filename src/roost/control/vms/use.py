"""What a VM uses, from the newest readings of its host's agent. Reads; decides nothing."""

from collections.abc import Sequence

from roost.analysis.store import SeriesStore
from roost.base.errors import SeriesUnavailable
from roost.base.timestamps import timestamp
from roost.ledger.schema.rows import VMRow
from roost.model.series import RATES, Reading, Subject
from roost.wire.bodies import UseBody

#: Counters of a reading that are told as rates.
_TOLD = ("disk_read_bytes", "disk_write_bytes", "net_received_bytes", "net_sent_bytes")
#: Figures that have a place of their own; the others are told by name.
_PLACED = frozenset({"cpu_milli", "memory_bytes", "disk_bytes"})


async def read_use(series: SeriesStore, vm: VMRow) -> UseBody | None:
    """Return what a VM used when it was read last; None when nobody has, or none can be had."""
    if vm.host is None:
        return None
    try:
        found = await series.newest(Subject("vm", vm.id), 2)
    except SeriesUnavailable:
        return None
    return use_of(found) if found else None


def use_of(newest: Sequence[Reading]) -> UseBody:
    """Return the use that the newest reading tells, with rates since the one before it."""
    last = newest[0]
    return UseBody(
        at=timestamp(last.at_ms),
        cpu_milli=round(last.figures.get("cpu_milli", 0)),
        memory_bytes=round(last.figures.get("memory_bytes", 0)),
        disk_bytes=round(last.figures.get("disk_bytes", 0)),
        **_rates(newest),
        more={name: value for name, value in last.figures.items() if name not in _PLACED},
    )


def _rates(newest: Sequence[Reading]) -> dict[str, int]:
    if len(newest) < 2 or (seconds := (newest[0].at_ms - newest[1].at_ms) / 1000) <= 0:
        return {}
    now, before = newest[0].figures, newest[1].figures
    found = {}
    for counter in _TOLD:
        if counter in now and counter in before and now[counter] >= before[counter]:
            # One that is smaller began anew, with another process.
            found[RATES[counter]] = round((now[counter] - before[counter]) / seconds)
    return found
