"""What a VM uses, from the newest readings of its host's agent. Reads; decides nothing."""

from typing import Any

import msgspec
from sqlalchemy import Connection, select

from roost.base.timestamps import timestamp
from roost.ledger.rows import VMRow
from roost.ledger.tables import samples
from roost.wire.bodies import UseBody

#: Counters of a reading that are told as rates, by the names that they are told under.
_RATES = {
    "disk_read_bytes_per_s": "disk_read_bytes",
    "disk_write_bytes_per_s": "disk_write_bytes",
    "net_received_bytes_per_s": "net_received_bytes",
    "net_sent_bytes_per_s": "net_sent_bytes",
}


def read_use(connection: Connection, vm: VMRow) -> UseBody | None:
    """Return what a VM used when it was read last; None when nobody has."""
    if vm.host is None:
        return None
    query = (
        select(samples)
        .where(samples.c.host == vm.host, samples.c.vm == vm.id)
        .order_by(samples.c.at_ms.desc())
        .limit(2)
    )
    found = [dict(row) for row in connection.execute(query).mappings()]
    return use_of(found) if found else None


def use_of(newest: list[dict[str, Any]]) -> UseBody:
    """Return the use that the newest reading tells, with rates since the one before it."""
    last = newest[0]
    more = _more(last)
    return UseBody(
        at=timestamp(last["at_ms"]),
        cpu_milli=last["cpu_milli"],
        memory_bytes=last["memory_bytes"],
        disk_bytes=last["disk_bytes"],
        **_rates(newest),
        more=more,
    )


def _rates(newest: list[dict[str, Any]]) -> dict[str, int]:
    if len(newest) < 2 or (seconds := (newest[0]["at_ms"] - newest[1]["at_ms"]) / 1000) <= 0:
        return {}
    now, before = _more(newest[0]), _more(newest[1])
    found = {}
    for name, counter in _RATES.items():
        if counter in now and counter in before and now[counter] >= before[counter]:
            # One that is smaller began anew, with another process.
            found[name] = round((now[counter] - before[counter]) / seconds)
    return found


def _more(reading: dict[str, Any]) -> dict[str, float]:
    return msgspec.json.decode(reading["more"] or "{}", type=dict[str, float])
