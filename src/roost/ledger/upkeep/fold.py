"""The law of the ledger: folding the events yields the rows.

Every event carries the rows that it changed as they were afterwards, so the last word on each key
is the row. `fold` does that in memory; `compare` does it on a live database and says where the two
differ. It keeps one number per row instead of the row, and goes through the events once for every
`MOST_ROWS` rows, so its memory is bounded however large the fleet. Old events are gone; it begins
with the rows that they led to (`base`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Table,
    bindparam,
    select,
    tuple_,
)

from roost.ledger.schema.amounts import AMOUNTS, LIMITS
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import (
    claims,
    constraint_versions,
    constraints,
    counters,
    displaced,
    fences,
    flavors,
    folded_rows,
    groups,
    holds,
    host_amounts,
    hosts,
    members,
    plan_moves,
    plans,
    policies,
    policy_versions,
    preemptions,
    priority_classes,
    projects,
    relaxations,
    reservations,
    tokens,
    tombstones,
    topologies,
    traffic,
    violations,
    vm_specs,
    vms,
)
from roost.ledger.schema.tables import events as events_table
from roost.ledger.writes.statements import count_each

PAGE = 1000
#: Rows that one pass over the events keeps account of: some 40 MiB.
MOST_ROWS = 200_000

Row = dict[str, Any]


class Pages:
    """A query that is answered page by page, in the order of its key; built once."""

    def __init__(
        self,
        columns: Sequence[Column[Any]],
        key: Sequence[Column[Any]],
        *where: ColumnElement[bool],
        table: FromClause | None = None,
    ) -> None:
        length = bindparam("length", type_=Integer())
        query = select(*columns).where(*where).order_by(*key).limit(length)
        if table is not None:
            query = query.select_from(table)
        last = [bindparam(f"last_{column.name}", type_=column.type) for column in key]
        self._key = [column.name for column in key]
        self._first, self._next = query, query.where(tuple_(*key) > tuple_(*last))

    def read(self, connection: Connection) -> Iterator[list[Any]]:
        """Yield the rows of the query, page by page."""
        found = list(connection.execute(self._first, {"length": PAGE}))
        while found:
            yield found
            if len(found) < PAGE:
                return
            last = {f"last_{name}": getattr(found[-1], name) for name in self._key}
            found = list(connection.execute(self._next, {"length": PAGE, **last}))


class Folded:
    """One table that events speak of: its key columns, and which columns they show."""

    def __init__(self, table: Table, key: tuple[str, ...], shown: tuple[str, ...]) -> None:
        self.table, self.key, self.shown = table, key, shown
        self._known = frozenset(shown)
        self._added = frozenset(name for name in shown if table.c[name].nullable)
        self._names = tuple(dict.fromkeys((*key, *shown)))  # a key may be shown too
        self._pages = Pages([table.c[name] for name in self._names], [table.c[n] for n in key])

    def known(self, row: Row) -> Row:
        """Return a row of an event with the columns of this release.

        What only another release knows is left out. A column that the event's release did not know
        is empty, as the migration that added it has left it.
        """
        if row.keys() == self._known:
            return row
        found = {name: value for name, value in row.items() if name in self._known}
        return dict.fromkeys(self._added - row.keys()) | found

    def rows(self, connection: Connection) -> Iterator[tuple[str, Row]]:
        """Yield each row by its key, as far as events show it."""
        for page in self._pages.read(connection):
            for found in page:
                row = dict(zip(self._names, found, strict=True))
                key = "|".join(str(row[name]) for name in self.key)
                yield key, {name: row[name] for name in self.shown}


def _all(table: Table, *, without: tuple[str, ...] = ()) -> Folded:
    key = tuple(column.name for column in table.primary_key)
    return Folded(table, key, tuple(c.name for c in table.c if c.name not in without))


FOLDED = {
    "vms": _all(vms),
    "vm_specs": Folded(vm_specs, ("vm", "version"), ("spec",)),
    "claims": _all(claims),
    "holds": _all(holds),
    "reservations": _all(reservations),
    "groups": _all(groups),
    "constraints": _all(constraints),
    "constraint_versions": Folded(constraint_versions, ("constraint_id", "version"), ("body",)),
    "policies": _all(policies),
    "policy_versions": Folded(policy_versions, ("policy", "version"), ("body",)),
    "relaxations": _all(relaxations),
    "violations": _all(violations),
    "priority_classes": _all(priority_classes),
    "flavors": _all(flavors),
    "preemptions": _all(preemptions),
    "displaced": _all(displaced),
    "plans": _all(plans),
    "plan_moves": _all(plan_moves),
    "topologies": _all(topologies),
    "traffic": _all(traffic),
    "members": Folded(members, ("group_id", "vm"), ()),
    "projects": Folded(
        projects, ("name",), ("name", *(f"{name}_quota" for name in LIMITS), "policy")
    ),
    "hosts": _all(hosts),
    "host_amounts": Folded(
        host_amounts,
        ("host",),
        ("generation", *(f"{name}_capacity" for name in LIMITS)),
    ),
    "tombstones": _all(tombstones),
    "fences": _all(fences),
    "tokens": _all(tokens, without=("hash",)),
}

#: What the first schema has put there before anything happened.
FIRST: dict[str, dict[str, Row]] = {
    "projects": {
        "default": {"name": "default", **{f"{name}_quota": None for name in LIMITS}, "policy": None}
    }
}

_decode: msgspec.json.Decoder[dict[str, dict[str, Any]]] = msgspec.json.Decoder(
    dict[str, dict[str, Any] | Any]
)
_row: Callable[[str], Row] = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(slots=True)
class Fold:
    """The rows that events lead to. `mine` says which keys this fold keeps account of."""

    mine: Callable[[str, str], bool] = lambda table, key: True
    keep: Callable[[Row], Any] = lambda row: row
    tables: dict[str, dict[str, Any]] = field(init=False)
    generations: dict[str, int] = field(default_factory=dict)
    versions: int = 0  # the highest version of any VM's spec so far

    def __post_init__(self) -> None:
        self.tables = {name: {} for name in FOLDED}
        for name, rows in FIRST.items():
            for key, row in rows.items():
                self._put(name, key, row)

    def begin(self, base: Iterable[tuple[str, str, str]]) -> None:
        """Begin with the rows of the base: table, key and row as JSON."""
        for rows in self.tables.values():
            rows.clear()
        for name, key, row in base:
            self._put(name, key, _row(row))

    def apply(self, changes: str) -> None:
        """Apply one event of the ledger to these rows."""
        for name, rows in _decode.decode(changes).items():
            if name in FOLDED:
                for key, row in rows.items():
                    self._put(name, key, row)
            elif name == "group_generations":
                for group, generation in rows.items():
                    self._move_group(group, generation)

    def _put(self, name: str, key: str, row: Row | None) -> None:
        if name == "vms" and row is None:
            for version in range(1, self.versions + 1):  # its spec is gone with the VM
                self.tables["vm_specs"].pop(f"{key}|{version}", None)
        elif name == "vm_specs":
            self.versions = max(self.versions, int(key.rpartition("|")[2]))
        if not self.mine(name, key):
            return
        if row is None:
            self.tables[name].pop(key, None)
            return
        row = FOLDED[name].known(row)
        if name == "groups":
            # Kept whole: its generation is also changed by itself.
            self.tables[name][key] = dict(row)
        else:
            self.tables[name][key] = self.keep(row)

    def _move_group(self, group: str, generation: int) -> None:
        row = self.tables["groups"].get(group)
        if row is not None:
            row["generation"] = generation

    def kept(self, name: str, key: str) -> Any:
        """Return a folded row by its key, or None."""
        row = self.tables[name].get(key)
        return self.keep(row) if row is not None and name == "groups" else row


def fold(events: Iterable[Event]) -> Fold:
    """Return the rows of every folded table after these events."""
    folded = Fold()
    for event in events:
        folded.apply(event.changes)
    return folded


# What follows from the rows


def host_committed(folded: Fold) -> dict[int, dict[str, int]]:
    """Return the sums of claims on each host, with the number of claims as `vms`."""
    found: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(LIMITS, 0))
    for key in folded.tables["host_amounts"]:
        found[int(key)]  # a host without claims has promised nothing
    for claim in folded.tables["claims"].values():
        _add(found[claim["host"]], claim)
    return dict(found)


def counters_committed(folded: Fold) -> dict[tuple[int, str], int]:
    """Return the sums of claims on each counter of each host."""
    found: dict[tuple[int, str], int] = defaultdict(int)
    for claim in folded.tables["claims"].values():
        if claim["counters"]:
            for counter, amount in msgspec.json.decode(claim["counters"]).items():
                found[claim["host"], counter] += amount
    return dict(found)


def projects_used(folded: Fold) -> dict[str, dict[str, int]]:
    """Return what the VMs of each project ask for together, with their number as `vms`."""
    found = {name: dict.fromkeys(LIMITS, 0) for name in folded.tables["projects"]}
    for vm in folded.tables["vms"].values():
        _add(found.setdefault(vm["project"], dict.fromkeys(LIMITS, 0)), vm)
    return found


def _add(sums: dict[str, int], row: Row) -> None:
    for name in AMOUNTS:
        sums[name] += row[name]
    sums["vms"] += 1


# Comparing with a live database


_EVENTS = Pages([events_table.c.seq, events_table.c.changes], [events_table.c.seq])
_BASE = Pages(
    [folded_rows.c.noun, folded_rows.c.key, folded_rows.c.row],
    [folded_rows.c.noun, folded_rows.c.key],
)
_IS_FOLDED = select(counters.c.value).where(counters.c.name == "folded")


def compare(connection: Connection, most: int = 20) -> tuple[int, list[str]]:
    """Fold the base and all events behind it; return the number of rows, and differences."""
    counted = count_each(connection, tuple(folded.table for folded in FOLDED.values()))
    total = sum(counted.values())
    passes = total // MOST_ROWS + 1
    empty = {name for name, count in counted.items() if not count}
    differences: list[str] = []
    for each in range(passes):
        for difference in _compare_part(connection, each, passes, empty):
            differences.append(difference)
            if len(differences) >= most:
                return total, differences
    return total, differences


def _compare_part(
    connection: Connection, part: int, passes: int, empty: Collection[str]
) -> Iterator[str]:
    """Compare one part of all rows with the events; tables without rows need not be read."""

    def mine(table: str, key: str) -> bool:
        return passes == 1 or _number(f"{table}:{key}".encode()) % passes == part

    folded = Fold(mine, lambda row: _number(_encode(row)))
    if connection.execute(_IS_FOLDED).scalar_one():
        folded.begin(row for page in _BASE.read(connection) for row in page)
    for page in _EVENTS.read(connection):
        for _, changes in page:
            folded.apply(changes)
    for name, description in FOLDED.items():
        there = () if description.table.name in empty else description.rows(connection)
        for key, row in there:
            if not mine(name, key):
                continue
            kept = folded.kept(name, key)
            if kept is None:
                yield f"{name} {key!r} is a row, but events do not lead to it"
            elif kept != _number(_encode(row)):
                yield f"{name} {key!r} is not the row that events lead to"
            folded.tables[name].pop(key, None)
        for key in folded.tables[name]:
            yield f"events lead to {name} {key!r}, but there is no such row"


def _number(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
