"""Every invariant of the ledger, restated as questions about its rows.

`examine` asks them all on one consistent view of a live database. Sums are made by the database;
what it cannot sum is read in pages, so memory does not grow with the number of VMs. A finding is a
broken invariant; a note is worth knowing but can come about rightly: a quota that was lowered, a
spread that deletions made uneven.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, exists, func, literal, or_, select
from sqlalchemy.sql.elements import ColumnElement

from roost.ledger.fold import compare, pages
from roost.ledger.tables import (
    AMOUNTS,
    claims,
    counters,
    events,
    groups,
    host_amounts,
    host_counters,
    hosts,
    members,
    projects,
    tombstones,
    vms,
)

#: Findings of one check that are told one by one.
MOST_TOLD = 20
_LIMITS = (*AMOUNTS, "vms")


class _Place(msgspec.Struct):
    """What a group rule needs of an inventory."""

    zone: str = ""
    rack: str = ""


_place = msgspec.json.Decoder(_Place)
_amounts: msgspec.json.Decoder[dict[str, int]] = msgspec.json.Decoder(dict[str, int])


@dataclass(slots=True)
class Examination:
    """What was looked at, by the name of the check, and what is wrong or worth knowing."""

    checked: dict[str, int] = field(default_factory=dict)
    findings: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def count(self, check: str, number: int) -> None:
        """Say how much a check looked at."""
        self.checked[check] = self.checked.get(check, 0) + int(number)

    def find(self, check: str, message: str) -> None:
        """Say that an invariant is broken."""
        self._tell(self.findings, check, message)

    def note(self, check: str, message: str) -> None:
        """Say what is worth knowing."""
        self._tell(self.notes, check, message)

    def _tell(self, told: list[tuple[str, str]], check: str, message: str) -> None:
        already = sum(1 for name, _ in told if name == check)
        if already < MOST_TOLD:
            told.append((check, message))
        elif already == MOST_TOLD:
            told.append((check, f"more than {MOST_TOLD}; the rest is not listed"))


def examine(connection: Connection) -> Examination:
    """Ask everything."""
    found = Examination()
    for check in CHECKS:
        check(connection, found)
    return found


def _number(connection: Connection, table: Any, *where: ColumnElement[bool]) -> int:
    query = select(func.count()).select_from(table).where(*where)
    return int(connection.execute(query).scalar_one())


# Promises


def _committed(connection: Connection, found: Examination) -> None:
    """What a host has promised is the sum of its claims, and within its capacity."""
    sums = (
        select(
            claims.c.host.label("host"),
            *(func.sum(claims.c[name]).label(name) for name in AMOUNTS),
            func.count().label("vms"),
        )
        .group_by(claims.c.host)
        .subquery()
    )
    query = select(
        host_amounts,
        *(func.coalesce(sums.c[name], 0).label(f"{name}_claimed") for name in _LIMITS),
    ).outerjoin(sums, sums.c.host == host_amounts.c.host)
    wrong = or_(
        *(
            or_(
                host_amounts.c[f"{name}_committed"] != func.coalesce(sums.c[name], 0),
                host_amounts.c[f"{name}_committed"] > host_amounts.c[f"{name}_capacity"],
            )
            for name in _LIMITS
        )
    )
    found.count("committed", _number(connection, host_amounts))
    ordered = query.where(wrong).order_by(host_amounts.c.host).limit(MOST_TOLD + 1)
    for row in connection.execute(ordered).mappings():
        for name in _LIMITS:
            committed, capacity = row[f"{name}_committed"], row[f"{name}_capacity"]
            claimed = int(row[f"{name}_claimed"])
            if committed != claimed:
                found.find(
                    "committed",
                    f"host {row['host']} has promised {committed} {name}, its claims {claimed}",
                )
            if committed > capacity:
                found.find(
                    "over_capacity",
                    f"host {row['host']} has promised {committed} {name} of {capacity}",
                )


def _counters(connection: Connection, found: Examination) -> None:
    """The same for devices, cells and extended resources."""
    claimed: dict[tuple[int, str], int] = defaultdict(int)
    columns = [claims.c.id, claims.c.host, claims.c.counters]
    for page in pages(connection, columns, [claims.c.id], claims.c.counters != ""):
        for _, host, text in page:
            for counter, amount in _amounts.decode(text).items():
                claimed[host, counter] += amount
    key = [host_counters.c.host, host_counters.c.counter]
    for page in pages(connection, list(host_counters.c), key):
        found.count("counters", len(page))
        for host, counter, capacity, committed in page:
            expected = claimed.pop((host, counter), 0)
            if committed != expected:
                found.find(
                    "counters",
                    f"host {host} has promised {committed} of {counter}, its claims {expected}",
                )
            if committed > capacity:
                found.find(
                    "over_capacity",
                    f"host {host} has promised {committed} of {counter} of {capacity}",
                )
    for (host, counter), amount in claimed.items():
        found.find("counters", f"claims ask {amount} of {counter} of host {host}: no such counter")


def _quotas(connection: Connection, found: Examination) -> None:
    """What a project uses is the sum over its VMs, also over those that wait."""
    sums = (
        select(
            vms.c.project.label("project"),
            *(func.sum(vms.c[name]).label(name) for name in AMOUNTS),
            func.count().label("vms"),
        )
        .group_by(vms.c.project)
        .subquery()
    )
    query = select(
        projects,
        *(func.coalesce(sums.c[name], 0).label(f"{name}_asked") for name in _LIMITS),
    ).outerjoin(sums, sums.c.project == projects.c.name)
    for row in connection.execute(query.order_by(projects.c.name)).mappings():
        found.count("quotas", 1)
        for name in _LIMITS:
            used, quota, asked = (
                row[f"{name}_used"],
                row[f"{name}_quota"],
                int(row[f"{name}_asked"]),
            )
            if used != asked:
                found.find(
                    "quotas",
                    f"project {row['name']!r} uses {used} {name}, its VMs ask for {asked}",
                )
            if quota is not None and used > quota:
                found.note(
                    "quota_below_use",
                    f"project {row['name']!r} uses {used} {name} of {quota}",
                )
    homeless = ~exists().where(projects.c.name == vms.c.project)
    for vm in connection.execute(select(vms.c.id).where(homeless).limit(MOST_TOLD + 1)).scalars():
        found.find("quotas", f"VM {vm} belongs to no project")


# Claims and VMs


def _each(
    connection: Connection, found: Examination, check: str, query: Any, say: Callable[..., str]
) -> None:
    for row in connection.execute(query.limit(MOST_TOLD + 1)):
        found.find(check, say(*row))


def _run_claims(connection: Connection, found: Examination) -> None:
    """A VM has a `run` claim on its host, and only there; `migrate_in` while it has a target."""
    found.count("claims", _number(connection, claims))
    found.count("vms", _number(connection, vms))
    for kind, column in (("run", vms.c.host), ("migrate_in", vms.c.target)):
        held = exists().where(
            claims.c.vm == vms.c.id, claims.c.kind == kind, claims.c.host == column
        )
        _each(
            connection, found, "vms",
            select(vms.c.id, column).where(column.is_not(None), ~held).order_by(vms.c.id),
            lambda vm, host, kind=kind: f"VM {vm} has no {kind} claim on host {host}",
        )  # fmt: skip
        wanted = exists().where(vms.c.id == claims.c.vm, column == claims.c.host)
        _each(
            connection, found, "claims",
            select(claims.c.id, claims.c.host).where(claims.c.kind == kind, ~wanted)
            .order_by(claims.c.id),
            lambda claim, host: f"claim {claim} holds room on host {host} for nobody",
        )  # fmt: skip
    _each(
        connection, found, "claims",
        select(claims.c.id).where(
            or_(
                claims.c.id != claims.c.vm + literal(":") + claims.c.kind,
                claims.c.kind.not_in(["run", "migrate_in", "hold"]),
            )
        ).order_by(claims.c.id),
        lambda claim: f"claim {claim} is not named after its VM and kind",
    )  # fmt: skip


def _holds(connection: Connection, found: Examination) -> None:
    """Room is held only for what is still to be destroyed, or is moving."""
    buried = exists().where(tombstones.c.vm == claims.c.vm, tombstones.c.host == claims.c.host)
    moving = exists().where(vms.c.id == claims.c.vm, vms.c.target.is_not(None))
    found.count("holds", _number(connection, claims, claims.c.kind == "hold"))
    _each(
        connection, found, "holds",
        select(claims.c.id, claims.c.host).where(claims.c.kind == "hold", ~buried, ~moving)
        .order_by(claims.c.id),
        lambda claim, host: f"claim {claim} on host {host} has neither tombstone nor move",
    )  # fmt: skip


def _tombstones(connection: Connection, found: Examination) -> None:
    """Nothing is destroyed where it is wanted."""
    wanted = and_(
        vms.c.id == tombstones.c.vm,
        vms.c.desired != "absent",
        or_(vms.c.host == tombstones.c.host, vms.c.target == tombstones.c.host),
    )
    found.count("tombstones", _number(connection, tombstones))
    _each(
        connection, found, "tombstones",
        select(tombstones.c.vm, tombstones.c.host).where(exists().where(wanted))
        .order_by(tombstones.c.vm, tombstones.c.host),
        lambda vm, host: f"VM {vm} is to be destroyed on host {host}, where it is wanted",
    )  # fmt: skip


def _hosts(connection: Connection, found: Examination) -> None:
    """Whatever names a host names one that is registered."""
    found.count("hosts", _number(connection, hosts))
    for what, name, column in (
        ("VM", vms.c.id, vms.c.host),
        ("the move of VM", vms.c.id, vms.c.target),
        ("claim", claims.c.id, claims.c.host),
        ("the amounts of", host_amounts.c.host, host_amounts.c.host),
        ("the counter", host_counters.c.counter, host_counters.c.host),
    ):
        unknown = and_(column.is_not(None), ~exists().where(hosts.c.number == column))
        _each(
            connection, found, "hosts",
            select(name, column).where(unknown).order_by(name),
            lambda name, host, what=what: f"{what} {name} is on host {host}, which is not known",
        )  # fmt: skip
    counted = exists().where(host_amounts.c.host == hosts.c.number)
    _each(
        connection, found, "hosts",
        select(hosts.c.number).where(~counted).order_by(hosts.c.number),
        lambda host: f"host {host} has no amounts",
    )  # fmt: skip


def _names(connection: Connection, found: Examination) -> None:
    """No two VMs of a project, and no two hosts, have one name."""
    for what, table, columns in (
        ("VMs", vms, [vms.c.project, vms.c.name]),
        ("hosts", hosts, [hosts.c.name]),
    ):
        found.count("names", _number(connection, table))
        twice = select(*columns, func.count()).group_by(*columns).having(func.count() > 1)
        _each(
            connection, found, "names", twice.order_by(*columns),
            lambda *row, what=what: f"{row[-1]} {what} are called {'/'.join(row[:-1])!r}",
        )  # fmt: skip


# Groups


def _groups(connection: Connection, found: Examination) -> None:
    """Hard rules hold for the members that have a host."""
    places = _domains(connection)
    for group in _placed_members(connection):
        found.count("groups", 1)
        first = group[0]
        domains = Counter(places.get((row.host, first.scope), "") for row in group)
        # A rule about labels may be younger than the VMs that have them.
        tell = found.note if first.selector else found.find
        for broken in _broken_rule(first, domains):
            tell("groups", broken)
        if first.rule == "spread":
            _note_skew(found, first, domains, places)
    for what, column, where in (
        ("VM", members.c.vm, vms.c.id == members.c.vm),
        ("group", members.c.group_id, groups.c.id == members.c.group_id),
    ):
        _each(
            connection, found, "groups",
            select(members.c.group_id, members.c.vm).where(~exists().where(where)).order_by(column),
            lambda group, vm, what=what: f"{vm} is in {group!r}, but there is no such {what}",
        )  # fmt: skip


def _broken_rule(group: Any, domains: Counter[str]) -> Iterator[str]:
    known = {domain: count for domain, count in domains.items() if domain}
    if group.rule == "anti-affinity":
        for domain, count in known.items():
            if count > 1:
                yield f"{count} members of {group.group_id!r} share the {group.scope} {domain}"
        return
    if domains[""]:
        yield f"{domains['']} members of {group.group_id!r} are in no {group.scope}"
    if group.rule == "affinity" and len(known) > 1:
        listed = ", ".join(sorted(known))
        yield f"members of {group.group_id!r} are in several {group.scope}s: {listed}"


def _note_skew(
    found: Examination, group: Any, domains: Counter[str], places: dict[tuple[int, str], str]
) -> None:
    """Skew is kept when a member is placed; deletions and new domains change it afterwards."""
    every = {domain for (_, scope), domain in places.items() if scope == group.scope and domain}
    fewest = min((domains[domain] for domain in every), default=0)
    skew = max((count for domain, count in domains.items() if domain), default=0) - fewest
    if skew > group.max_skew:
        found.note(
            "uneven_spread",
            f"{group.group_id!r} differs by {skew} members between {group.scope}s; "
            f"{group.max_skew} is asked for",
        )


def _domains(connection: Connection) -> dict[tuple[int, str], str]:
    """Return the fault domain of each host in each scope; empty where it has none."""
    found = {}
    for page in pages(connection, [hosts.c.number, hosts.c.inventory], [hosts.c.number]):
        for number, inventory in page:
            place = _place.decode(inventory)
            found[number, "host"] = str(number)
            found[number, "rack"] = place.rack
            found[number, "zone"] = place.zone
    return found


def _placed_members(connection: Connection) -> Iterator[list[Any]]:
    """Yield the placed members of each hard group, one group at a time."""
    columns = [
        members.c.group_id, members.c.vm, vms.c.host,
        groups.c.rule, groups.c.scope, groups.c.max_skew, groups.c.selector,
    ]  # fmt: skip
    joined = members.join(groups, groups.c.id == members.c.group_id).join(
        vms, vms.c.id == members.c.vm
    )
    key = [members.c.group_id, members.c.vm]
    where = (groups.c.hard, vms.c.host.is_not(None))
    rows = (row for page in pages(connection, columns, key, *where, table=joined) for row in page)
    for _, group in groupby(rows, lambda row: row.group_id):
        yield list(group)


# Events


def _sequence(connection: Connection, found: Examination) -> None:
    """Events are numbered from 1 without a gap, up to the counter."""
    query = select(func.count(), func.min(events.c.seq), func.max(events.c.seq))
    number, first, last = connection.execute(query).one()
    head = connection.execute(
        select(counters.c.value).where(counters.c.name == "events")
    ).scalar_one()
    found.count("sequence", number)
    if (number, first or 1, last or 0) != (head, 1, head):
        found.find(
            "sequence",
            f"{number} events are numbered {first} to {last}, the counter is at {head}",
        )


def _fold(connection: Connection, found: Examination) -> None:
    """Folding the events yields the rows."""
    number, differences = compare(connection, MOST_TOLD + 1)
    found.count("fold", number)
    for difference in differences:
        found.find("fold", difference)


CHECKS: tuple[Callable[[Connection, Examination], None], ...] = (
    _committed,
    _counters,
    _quotas,
    _run_claims,
    _holds,
    _tombstones,
    _hosts,
    _names,
    _groups,
    _sequence,
    _fold,
)
