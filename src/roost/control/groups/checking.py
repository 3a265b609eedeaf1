"""What a doctor asks about groups: hard rules hold, and members are VMs of groups that exist."""

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, select

from roost.control.groups.reading import domains_of_hosts
from roost.control.groups.rules import Place, Rule, broken, uneven
from roost.ledger.schema.tables import groups, members, vms
from roost.ledger.upkeep.examination import Examination, Wrong, has_none, never, none_of
from roost.ledger.upkeep.fold import Pages

_PLACED_MEMBERS = Pages(
    [
        members.c.group_id, members.c.vm, vms.c.host,
        groups.c.rule, groups.c.scope, groups.c.max_skew, groups.c.selector,
    ],
    [members.c.group_id, members.c.vm],
    groups.c.hard,
    vms.c.host.is_not(None),
    table=members.join(groups, groups.c.id == members.c.group_id).join(
        vms, vms.c.id == members.c.vm
    ),
)  # fmt: skip


def check_groups(connection: Connection, found: Examination) -> None:
    """See whether hard rules hold for the members that have a host."""
    known = domains_of_hosts(connection)
    for group in _placed_members(connection):
        found.count("groups", 1)
        first = group[0]
        asked = Rule(first.rule, first.scope, first.max_skew)
        places = []
        for row in group:
            if row.host not in known:
                continue  # that is asked of VMs
            name, domains = known[row.host]
            places.append(Place(row.vm, name, domains.of(first.scope, name)))
        # A rule about labels may be younger than the VMs that have them.
        tell = found.note if first.selector else found.find
        for said in broken(asked, places):
            tell("groups", f"{first.group_id!r} ({first.rule}): {said}")
        every = {domains.of(first.scope, name) for name, domains in known.values()}
        if apart := uneven(asked, places, every):
            found.note("uneven_spread", f"{first.group_id!r}: {apart}")
    none_of(connection, found, _wrong_members())


@cache
def _wrong_members() -> list[Wrong]:
    return [
        never(
            "groups",
            select(members.c.group_id, members.c.vm).where(has_none(table, where)).order_by(column),
            lambda group, vm, what=what: f"{vm} is in {group!r}, but there is no such {what}",
        )
        for what, table, column, where in (
            ("VM", vms, members.c.vm, vms.c.id == members.c.vm),
            ("group", groups, members.c.group_id, groups.c.id == members.c.group_id),
        )
    ]


def _placed_members(connection: Connection) -> Iterator[list[Any]]:
    """Yield the placed members of each hard group, one group at a time."""
    rows = (row for page in _PLACED_MEMBERS.read(connection) for row in page)
    for _, group in groupby(rows, lambda row: row.group_id):
        yield list(group)
