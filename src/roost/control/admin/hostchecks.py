"""What a doctor asks about hosts: whatever names one names one that is registered, and counted."""

from functools import cache

from sqlalchemy import Connection, and_, func, select

from roost.ledger.examination import Examination, Wrong, has_none, never, none_of
from roost.ledger.statements import count_rows
from roost.ledger.tables import claims, host_amounts, host_counters, hosts, vms


@cache
def _wrong_hosts() -> list[Wrong]:
    wrong = []
    for what, name, column in (
        ("VM", vms.c.id, vms.c.host),
        ("the move of VM", vms.c.id, vms.c.target),
        ("claim", claims.c.id, claims.c.host),
        ("the amounts of", host_amounts.c.host, host_amounts.c.host),
        ("the counter", host_counters.c.counter, host_counters.c.host),
    ):
        unknown = and_(column.is_not(None), has_none(hosts, hosts.c.number == column))
        wrong.append(
            never(
                "hosts",
                select(name, column).where(unknown).order_by(name),
                lambda name, host, what=what: (
                    f"{what} {name} is on host {host}, which is not known"
                ),
            )
        )
    uncounted = has_none(host_amounts, host_amounts.c.host == hosts.c.number)
    query = select(hosts.c.number).where(uncounted).order_by(hosts.c.number)
    return [*wrong, never("hosts", query, "host {} has no amounts".format)]


def check_hosts(connection: Connection, found: Examination) -> None:
    """See whether whatever names a host names one that is registered, and no two have one name."""
    found.count("hosts", count_rows(connection, hosts))
    none_of(connection, found, _wrong_hosts())
    found.count("names", count_rows(connection, hosts))
    none_of(connection, found, [_SAME_NAME])


_SAME_NAME = never(
    "names",
    select(hosts.c.name, func.count())
    .group_by(hosts.c.name)
    .having(func.count() > 1)
    .order_by(hosts.c.name),
    lambda name, count: f"{count} hosts are called {name!r}",
)
