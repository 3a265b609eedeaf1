"""What a doctor asks about hosts: whatever names one names one that is registered, and counted.

And which of them need somebody: those that are silent, and those that run VMs of no list.
"""

from functools import cache

import msgspec
from sqlalchemy import Connection, and_, func, select

from roost.ledger.schema.tables import claims, host_amounts, host_counters, hosts, vms
from roost.ledger.upkeep.examination import MOST_TOLD, Examination, Wrong, has_none, never, none_of
from roost.ledger.writes.statements import count_rows
from roost.wire.agentlink import HeldVM


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
    _silent(connection, found)
    _strangers(connection, found)


_ON_IT = select(func.count()).select_from(vms).where(vms.c.host == hosts.c.number)
_SILENT = (
    select(hosts.c.name, hosts.c.health, hosts.c.admin, hosts.c.fenced, _ON_IT.scalar_subquery())
    .where(hosts.c.health != "online")
    .order_by(hosts.c.name)
)


def _silent(connection: Connection, found: Examination) -> None:
    """Report hosts that are not heard; one that was emptied and shut may be off on purpose."""
    for name, health, admin, fenced, number in connection.execute(_SILENT):
        has = f"{number} VM is on it" if number == 1 else f"{number} VMs are on it"
        said = f"host {name} is {health}{f', fenced ({fenced})' if fenced else ''}, {has}"
        if number or admin == "open":
            found.trouble("silent", said)
        else:
            found.note("silent", said)


#: Characters of what a host said that are told.
_LONGEST = 200
_STRANGERS = (
    select(hosts.c.name, hosts.c.held)
    .where(hosts.c.held.not_in(("", "[]")))
    .order_by(hosts.c.name)
    .limit(MOST_TOLD + 1)
)


def _strangers(connection: Connection, found: Examination) -> None:
    """Report VMs that hosts run and no list names: kept, without a claim of their room."""
    for name, told in connection.execute(_STRANGERS):
        try:
            strangers = msgspec.json.decode(told, type=list[_Stranger])
        except msgspec.MsgspecError as error:
            found.trouble("held", f"what host {name} has beside its list cannot be read: {error}")
            continue
        for held in strangers:
            said = f"host {name} has VM {held.id[:_LONGEST]} ({held.seen[:_LONGEST]})"
            found.trouble("held", f"{said}: {held.reason[:_LONGEST]}")


class _Stranger(msgspec.Struct):
    """A held VM as any release has stored it: the bounds of today's messages are not its own."""

    id: str
    seen: str = HeldVM("").seen
    reason: str = HeldVM("").reason


_SAME_NAME = never(
    "names",
    select(hosts.c.name, func.count())
    .group_by(hosts.c.name)
    .having(func.count() > 1)
    .order_by(hosts.c.name),
    lambda name, count: f"{count} hosts are called {name!r}",
)
