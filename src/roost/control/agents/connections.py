"""The order of an agent's connections: reports that come by an older one are stale.

Reports keep their order within a connection, not between two of them: one may wait in a process
that is stopped, or cannot reach the database, while the agent goes on at another. So agents number
their connections, and the newest of each host is in the ledger. It is written together with the
first report of a connection, which holds everything: nothing that an older one said is missed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import bindparam, select

from roost.ledger.schema.tables import conversations, hosts
from roost.ledger.writes.transaction import Tx

_KNOWN = (
    select(conversations)
    .where(conversations.c.host.in_(bindparam("numbers", expanding=True)))
    .order_by(conversations.c.host)
    .with_for_update()
)


class ConnectionOrder(NamedTuple):
    """One connection of one life of an agent."""

    instance: str
    number: int


def newest(tx: Tx, heard: Mapping[int, Iterable[ConnectionOrder]]) -> dict[int, ConnectionOrder]:
    """Record connections and return the newest of each host; locks their rows."""
    found: dict[int, ConnectionOrder] = {}
    if not heard:
        return found
    rows = tx.rows(_KNOWN, numbers=sorted(heard))
    for host in sorted(heard.keys() - {row["host"] for row in rows}):
        # It joined through a process of an older version, which kept no such row.
        if (known_host := tx.find(hosts, number=host)) is not None:
            row = {"host": host, "instance": known_host["instance"], "number": 0}
            rows.append(tx.insert(conversations, row))
    for row in rows:
        host = row["host"]
        known = best = ConnectionOrder(row["instance"], row["number"])
        for each in heard[host]:
            if _is_newer(tx, host, each, best):
                best = each
        if best != known:
            tx.change(conversations, {"host": host}, **best._asdict())
        found[host] = best
    return found


def _is_newer(tx: Tx, host: int, one: ConnectionOrder, other: ConnectionOrder) -> bool:
    if one.instance == other.instance:
        return one.number > other.number
    row = tx.find(hosts, number=host)
    return row is not None and row["instance"] == one.instance
