"""Every invariant of the ledger, restated as questions about its rows.

`examine` asks them all on one consistent view of a live database. Sums are made by the database;
what it cannot sum is read in pages, so memory does not grow with the number of VMs. A finding is a
broken invariant; a note is worth knowing but can come about rightly: a quota that was lowered, a
spread that deletions made uneven.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, and_, func, literal, or_, select

from roost.ledger.amounts import AMOUNTS, LIMITS
from roost.ledger.capacity import CLAIM_KINDS, CLEANUP, MIGRATE_IN, RUN
from roost.ledger.examination import MOST_TOLD, Examination, Wrong, has_none, never, none_of
from roost.ledger.fold import Pages, compare
from roost.ledger.older import may_run_beside
from roost.ledger.statements import count_rows
from roost.ledger.tables import (
    claims,
    counters,
    events,
    host_amounts,
    host_counters,
    hosts,
    projects,
    tombstones,
    vm_specs,
    vm_user_data,
    vms,
)

_amounts: msgspec.json.Decoder[dict[str, int]] = msgspec.json.Decoder(dict[str, int])


def examine(connection: Connection) -> Examination:
    """Run every check on one view of the ledger."""
    found = Examination()
    for check in CHECKS:
        check(connection, found)
    return found


# Promises


@cache
def _wrong_amounts() -> Select[Any]:
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
        *(func.coalesce(sums.c[name], 0).label(f"{name}_claimed") for name in LIMITS),
    ).outerjoin(sums, sums.c.host == host_amounts.c.host)
    wrong = or_(
        *(
            or_(
                host_amounts.c[f"{name}_committed"] != func.coalesce(sums.c[name], 0),
                host_amounts.c[f"{name}_committed"] > host_amounts.c[f"{name}_capacity"],
            )
            for name in LIMITS
        )
    )
    return query.where(wrong).order_by(host_amounts.c.host).limit(MOST_TOLD + 1)


def _committed(connection: Connection, found: Examination) -> None:
    """What a host has promised is the sum of its claims, and within its capacity."""
    found.count("committed", count_rows(connection, host_amounts))
    for row in connection.execute(_wrong_amounts()).mappings():
        for name in LIMITS:
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


_CLAIMED = Pages(
    [claims.c.id, claims.c.host, claims.c.counters], [claims.c.id], claims.c.counters != ""
)
_COUNTERS = Pages(list(host_counters.c), [host_counters.c.host, host_counters.c.counter])


def _counters(connection: Connection, found: Examination) -> None:
    """The same for devices, cells and extended resources."""
    claimed: dict[tuple[int, str], int] = defaultdict(int)
    for page in _CLAIMED.read(connection):
        for _, host, text in page:
            for counter, amount in _amounts.decode(text).items():
                claimed[host, counter] += amount
    for page in _COUNTERS.read(connection):
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


@cache
def _asked_of_projects() -> Select[Any]:
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
        *(func.coalesce(sums.c[name], 0).label(f"{name}_asked") for name in LIMITS),
    ).outerjoin(sums, sums.c.project == projects.c.name)
    return query.order_by(projects.c.name)


_HOMELESS = never(
    "quotas",
    select(vms.c.id).where(has_none(projects, projects.c.name == vms.c.project)),
    lambda vm: f"VM {vm} belongs to no project",
)


def _quotas(connection: Connection, found: Examination) -> None:
    """What a project uses is the sum over its VMs, also over those that wait."""
    for row in connection.execute(_asked_of_projects()).mappings():
        found.count("quotas", 1)
        for name in LIMITS:
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
    none_of(connection, found, [_HOMELESS])


# Claims and VMs


@cache
def _wrong_claims() -> list[Wrong]:
    wrong = []
    for kind, column in ((RUN, vms.c.host), (MIGRATE_IN, vms.c.target)):
        unheld = has_none(
            claims, claims.c.id == vms.c.id + literal(f":{kind}"), claims.c.host == column
        )
        unwanted = has_none(vms, vms.c.id == claims.c.vm, column == claims.c.host)
        wrong += [
            never(
                "vms",
                select(vms.c.id, column).where(column.is_not(None), unheld).order_by(vms.c.id),
                lambda vm, host, kind=kind: f"VM {vm} has no {kind} claim on host {host}",
            ),
            never(
                "claims",
                select(claims.c.id, claims.c.host).where(claims.c.kind == kind, unwanted)
                .order_by(claims.c.id),
                lambda claim, host: f"claim {claim} holds room on host {host} for nobody",
            ),
        ]  # fmt: skip
    misnamed = or_(
        claims.c.id != claims.c.vm + literal(":") + claims.c.kind,
        claims.c.kind.not_in(CLAIM_KINDS),
    )
    query = select(claims.c.id).where(misnamed).order_by(claims.c.id)
    say = "claim {} is not named after its VM and kind".format
    return [*wrong, never("claims", query, say)]


def _run_claims(connection: Connection, found: Examination) -> None:
    """A VM has a `run` claim on its host, and only there; `migrate_in` while it has a target."""
    found.count("claims", count_rows(connection, claims))
    found.count("vms", count_rows(connection, vms))
    none_of(connection, found, _wrong_claims())


_HOLDS = select(func.count()).select_from(claims).where(claims.c.kind == CLEANUP)
_WRONG_HOLD = never(
    "holds",
    select(claims.c.id, claims.c.host)
    .where(
        claims.c.kind == CLEANUP,
        has_none(tombstones, tombstones.c.vm == claims.c.vm, tombstones.c.host == claims.c.host),
        # Targets are counted: the index of those that are moving is not the way to one VM.
        select(func.count(vms.c.target)).where(vms.c.id == claims.c.vm).scalar_subquery() == 0,
    )
    .order_by(claims.c.id),
    lambda claim, host: f"claim {claim} on host {host} has neither tombstone nor move",
)


def _holds(connection: Connection, found: Examination) -> None:
    """Room is held only for what is still to be destroyed, or is moving."""
    found.count("holds", connection.execute(_HOLDS).scalar_one())
    none_of(connection, found, [_WRONG_HOLD])


_WRONG_TOMBSTONE = never(
    "tombstones",
    select(tombstones.c.vm, tombstones.c.host)
    .where(
        ~has_none(
            vms,
            vms.c.id == tombstones.c.vm,
            vms.c.desired != "absent",
            or_(vms.c.host == tombstones.c.host, vms.c.target == tombstones.c.host),
        )
    )
    .order_by(tombstones.c.vm, tombstones.c.host),
    lambda vm, host: f"VM {vm} is to be destroyed on host {host}, where it is wanted",
)


def _tombstones(connection: Connection, found: Examination) -> None:
    """Nothing is destroyed where it is wanted."""
    found.count("tombstones", count_rows(connection, tombstones))
    none_of(connection, found, [_WRONG_TOMBSTONE])


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


def _hosts(connection: Connection, found: Examination) -> None:
    """Whatever names a host names one that is registered."""
    found.count("hosts", count_rows(connection, hosts))
    none_of(connection, found, _wrong_hosts())


@cache
def _twice() -> list[Wrong]:
    return [
        never(
            "names",
            select(*columns, func.count())
            .group_by(*columns)
            .having(func.count() > 1)
            .order_by(*columns),
            lambda *row, what=what: f"{row[-1]} {what} are called {'/'.join(row[:-1])!r}",
        )
        for what, columns in (
            ("VMs", [vms.c.project, vms.c.name]),
            ("hosts", [hosts.c.name]),
        )
    ]


def _names(connection: Connection, found: Examination) -> None:
    """No two VMs of a project, and no two hosts, have one name."""
    found.count("names", count_rows(connection, vms) + count_rows(connection, hosts))
    none_of(connection, found, _twice())


# Events


_NUMBERED = select(func.count(), func.min(events.c.seq), func.max(events.c.seq))
_HEAD = select(counters.c.value).where(counters.c.name == "events")


@cache
def _wrong_specs() -> list[Wrong]:
    return [
        never(
            "specs",
            select(table.c.vm).where(has_none(vms, vms.c.id == table.c.vm)).order_by(table.c.vm),
            f"{table.name} has a row of VM {{}}, which is gone".format,
        )
        for table in (vm_specs, vm_user_data)
    ]


def _specs(connection: Connection, found: Examination) -> None:
    """Every VM has its spec, and what stands beside a VM is gone with it."""
    found.count("specs", count_rows(connection, vm_specs))
    none_of(connection, found, _wrong_specs())
    if may_run_beside(connection):
        found.note(
            "upgrade",
            "older processes may run beside; roost ledger finish-upgrade once all are of this "
            "version",
        )
        return
    query = select(vms.c.id).where(has_none(vm_specs, vm_specs.c.vm == vms.c.id)).order_by(vms.c.id)
    none_of(connection, found, [never("specs", query, "VM {} has no spec".format)])


def _sequence(connection: Connection, found: Examination) -> None:
    """Events are numbered from 1 without a gap, up to the counter."""
    number, first, last = connection.execute(_NUMBERED).one()
    head = connection.execute(_HEAD).scalar_one()
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
    _specs,
    _sequence,
    _fold,
)
