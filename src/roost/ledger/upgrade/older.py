"""Compatibility with processes of the release before on the same ledger: what is written for them.

Until schema 0005 a VM's row had a column `asked`: the body that created it, as JSON, user data and
all, which every event of the VM repeated. Processes of that release insert it and cannot read a row
or an event without it. While the counter `older_processes` is set (by the migration of a PostgreSQL
ledger that was in use; a SQLite file has one process), this release

    writes   `asked` to the column when it creates a VM, and into every event of a VM's row
    reads    the spec of a VM that an older process created, from its column or its event

and `finish` ends it, piece by piece: the missing specs are stored, the counter goes, the column is
emptied, and events lose the user data. All of that is here and in no other module; this one goes
with the column, one release later.

The counter `release_before` is set by the migrations of such a ledger to schemas 0009, 0018 and
the newest, also where an earlier one is gone: until `finish` nothing is written that processes of
any schema before do not follow. `before_counters_held` is the same for schema 0028, of holds that
keep extended resources, devices or NUMA cells.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    Connection,
    bindparam,
    column,
    delete,
    exists,
    func,
    select,
    table,
    text,
    update,
)

from roost.ledger.claims.proposals import FIRST, KEPT, Outcome, Proposal
from roost.ledger.migrations.asked_bodies import asked_of_spec, spec_of_asked
from roost.ledger.schema.rows import Event, labels_of
from roost.ledger.schema.tables import counters, vm_specs, vm_user_data
from roost.ledger.schema.tables import events as events_table
from roost.ledger.writes.transaction import Tx, row_json

COUNTER = "older_processes"
#: Set by the migration of a ledger that was in use to schema 0007; `finish-upgrade` removes it.
CLEAR = "clear_user_data"
#: Set by the migrations of a ledger that was in use to 0009, 0018 and the newest schema;
#: `finish-upgrade` removes it.
BEFORE = "release_before"
#: Set by the migration of a ledger that was in use to 0029; `finish-upgrade` removes it.
BEFORE_COUNTERS = "before_counters_held"
#: VMs or events that one step of `finish` changes.
PIECE = 500
#: Events that one step looks through.
WINDOW = 20_000

_FLAG = select(counters.c.value).where(counters.c.name == COUNTER)
_ANY = select(counters.c.value).where(counters.c.name.in_((COUNTER, CLEAR, BEFORE)))
_UNFINISHED = select(counters.c.value).where(
    counters.c.name.in_((COUNTER, BEFORE, BEFORE_COUNTERS))
)
_COUNTERS_UNKNOWN = select(counters.c.value).where(counters.c.name == BEFORE_COUNTERS)
_vms = table("vms", column("id"), column("asked"))
_ASKED = select(_vms.c.id, _vms.c.asked).where(_vms.c.id.in_(bindparam("ids", expanding=True)))
_NO_SPEC = ~exists().where(vm_specs.c.vm == _vms.c.id)
_MISSING = select(_vms.c.id, _vms.c.asked).where(_NO_SPEC).order_by(_vms.c.id)
_SET_ASKED = """
UPDATE vms SET asked = u.asked FROM unnest($1::text[], $2::text[]) AS u(id, asked)
WHERE vms.id = u.id
"""

_decode: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class _AskedRow(msgspec.Struct):
    asked: str = ""


class _AskedChanges(msgspec.Struct):
    vms: dict[str, _AskedRow | None] = {}


_asked_changes = msgspec.json.Decoder(_AskedChanges).decode


def may_run_beside(connection: Connection) -> bool:
    """Say whether processes that need `asked`, of before schema 0005, may use this ledger too."""
    return bool(connection.execute(_FLAG).scalar())


def is_unfinished(connection: Connection) -> bool:
    """Say whether somebody must still say that every process is of this release."""
    return any(connection.execute(_UNFINISHED).scalars())


def release_before_may_be_here(connection: Connection) -> bool:
    """Say whether a process of the release before may use this ledger too, whatever its schema.

    Whoever does what such a process does not follow asks this. A SQLite file has one process.
    """
    if connection.dialect.name == "sqlite":
        return False
    return any(connection.execute(_ANY).scalars())


def counters_held_may_be_unknown(connection: Connection) -> bool:
    """Say whether a process may use this ledger too that gives away what is held of counters."""
    if connection.dialect.name == "sqlite":
        return False
    return bool(connection.execute(_COUNTERS_UNKNOWN).scalar())


# Writing


def write_for_older(connection: Connection, events: Sequence[Event]) -> bool:
    """Add `asked` to what events say of VMs' rows; False once no older process can be there.

    The counter is locked until the commit, so that `finish` comes after what is written here.
    """
    if not connection.execute(_FLAG.with_for_update(read=True)).scalar():
        return False
    for event in events:
        changes = _decode.decode(event.changes)
        rows = {vm: row for vm, row in changes.get("vms", {}).items() if row is not None}
        if not rows:
            continue
        found = dict(connection.execute(_ASKED, {"ids": list(rows)}).all())
        for vm, row in rows.items():
            row["asked"] = found.get(vm) or _least_asked(row)
        event.changes = row_json(changes)
    return True


async def write_created_for_older(
    connection: Any,
    proposals: Sequence[Proposal],
    outcomes: Sequence[Outcome],
    events: Sequence[Event],
) -> bool:
    """Write `asked` of the VMs that a batch created (asyncpg), to their rows and their events."""
    flag = "SELECT value FROM counters WHERE name = $1 FOR SHARE"
    if not await connection.fetchval(flag, COUNTER):
        return False
    kept = [
        proposal for proposal, outcome in zip(proposals, outcomes, strict=True) if outcome is KEPT
    ]
    asked = {
        p.vm.id: asked_of_spec(
            p.vm.name, p.vm.project, labels_of(p.vm.labels), p.spec.text, p.spec.user_data
        )
        for p in kept
    }
    await connection.execute(_SET_ASKED, list(asked), list(asked.values()))
    for event in events:
        changes = _decode.decode(event.changes)
        for vm, row in changes["vms"].items():
            row["asked"] = asked[vm]
        event.changes = row_json(changes)
    return True


def _least_asked(row: Mapping[str, Any]) -> str:
    """Return a body for a row that is gone again by the end of its transaction."""
    demand = {"cpu": f"{row['cpu_milli']}m", "memory": row["memory_bytes"]}
    return row_json({"name": row["name"], "project": row["project"], "demand": demand})


# Reading


def missing_specs(connection: Connection) -> list[tuple[str, str]]:
    """Return the specs of all VMs that have none stored: older processes created them."""
    found = connection.execute(_MISSING)
    return [(vm, spec_of_asked(asked)[0]) for vm, asked in found]


def read_asked(connection: Connection, ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the spec and the user data of these VMs from the bodies that their rows have."""
    found = connection.execute(_ASKED, {"ids": list(ids)})
    return {vm: spec_of_asked(asked) for vm, asked in found if asked}


def specs_in(changes: str, ids: Iterable[str]) -> dict[str, str]:
    """Return the specs of these VMs from the bodies that an older process's event has."""
    rows = _asked_changes(changes).vms
    found = {}
    for vm in ids:
        row = rows.get(vm)
        if row is not None and row.asked:
            found[vm] = spec_of_asked(row.asked)[0]
    return found


def hide_asked(changes: dict[str, Any]) -> None:
    """Take out of an event what users never see: the bodies, which may hold user data."""
    for row in changes.get("vms", {}).values():
        if row is not None:
            row.pop("asked", None)


# Finishing


def store_missing(tx: Tx) -> int:
    """Store the specs of some VMs that older processes created; return how many."""
    found = tx.connection.execute(_MISSING.limit(PIECE)).all()
    specs = {}
    for vm, asked in found:
        spec, user_data = spec_of_asked(asked)
        tx.insert(vm_specs, {"vm": vm, "version": FIRST, "spec": spec})
        if user_data:
            tx.insert(vm_user_data, {"vm": vm, "user_data": user_data})
        specs[f"{vm}|{FIRST}"] = {"spec": spec}
    if specs:
        tx.event(
            "ledger.migrated", "ledger", {"vm_specs": specs}, note="stored for older processes"
        )
    return len(found)


def end_compatibility(tx: Tx) -> None:
    """Say that every process is of this release; needs all specs to be stored."""
    tx.connection.execute(delete(counters).where(counters.c.name == COUNTER))
    tx.connection.execute(text("DROP TRIGGER IF EXISTS roost_forget_vm ON vms"))
    tx.connection.execute(text("DROP FUNCTION IF EXISTS roost_forget_vm()"))
    gone = counters.c.name.in_((BEFORE, BEFORE_COUNTERS))
    tx.connection.execute(delete(counters).where(gone))
    tx.event("ledger.upgraded", "ledger", {}, note="no older process runs beside any more")


def empty_asked(tx: Tx) -> int:
    """Empty `asked` of some VMs; return how many."""
    some = select(_vms.c.id).where(_vms.c.asked != "").order_by(_vms.c.id).limit(PIECE)
    return tx.connection.execute(
        update(_vms).where(_vms.c.id.in_(some.scalar_subquery())).values(asked="")
    ).rowcount


def clean_events(tx: Tx, since: int) -> tuple[int, int | None]:
    """Take the bodies out of some events with user data; return how many, and where to go on."""
    head = int(tx.connection.execute(select(func.max(events_table.c.seq))).scalar() or 0)
    e = events_table.c
    query = select(e.seq, e.changes).where(
        e.seq > since,
        e.seq <= since + WINDOW,
        e.changes.contains("user_data"),
        e.changes.contains('"asked"'),
    )
    found = tx.connection.execute(query.order_by(e.seq).limit(PIECE)).all()
    for seq, changed in found:
        changes = _decode.decode(changed)
        hide_asked(changes)
        tx.connection.execute(
            update(events_table).where(e.seq == seq).values(changes=row_json(changes))
        )
    reached = found[-1][0] if len(found) == PIECE else since + WINDOW
    return len(found), reached if reached < head else None
