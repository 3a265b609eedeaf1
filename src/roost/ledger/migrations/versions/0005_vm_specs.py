"""Specs of VMs in a table of their own instead of bodies in `vms.asked`; user data beside them.

On PostgreSQL processes of the release before may go on while this runs, and beside those of this
release afterwards: the column stays, with a default, and a counter says so until `roost ledger
finish-upgrade` (see ledger/older.py). A SQLite file has one process: the column goes at once, and
so does the user data that earlier events repeat.
"""

from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

from roost.ledger.migrations.asked_bodies import spec_of_asked

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_PAGE = 500


def upgrade() -> None:
    """Make the tables and fill them from the bodies."""
    op.create_table(
        "vm_specs",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("vm", "version"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "vm_user_data",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("user_data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("vm"),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    shared = connection.dialect.name == "postgresql"
    if shared:
        op.execute("ALTER TABLE vms ALTER COLUMN asked SET DEFAULT ''")  # and no one writes there
    _store_specs(connection)
    if not shared:
        _hide_user_data(connection)
        op.execute("ALTER TABLE vms DROP COLUMN asked")
    elif _was_used(connection):
        op.execute("INSERT INTO counters (name, value) VALUES ('older_processes', 1)")
        # An older process deletes a VM and knows nothing of these tables.
        op.execute(
            "CREATE FUNCTION roost_forget_vm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "DELETE FROM vm_specs WHERE vm = OLD.id; "
            "DELETE FROM vm_user_data WHERE vm = OLD.id; "
            "RETURN NULL; END $$"
        )
        op.execute(
            "CREATE TRIGGER roost_forget_vm AFTER DELETE ON vms "
            "FOR EACH ROW EXECUTE FUNCTION roost_forget_vm()"
        )


def _was_used(connection: sa.Connection) -> bool:
    """Say whether any process has worked on this ledger before."""
    events = connection.execute(sa.text("SELECT value FROM counters WHERE name = 'events'"))
    leases = connection.execute(sa.text("SELECT 1 FROM leases LIMIT 1"))
    return bool(events.scalar()) or leases.first() is not None


def _store_specs(connection: sa.Connection) -> None:
    page = sa.text("SELECT id, asked FROM vms WHERE id > :last ORDER BY id LIMIT :length")
    last = ""
    while found := connection.execute(page, {"last": last, "length": _PAGE}).all():
        last = found[-1].id
        specs, data = [], []
        for vm, asked in found:
            spec, user_data = spec_of_asked(asked)
            specs.append({"vm": vm, "version": 1, "spec": spec})
            if user_data:
                data.append({"vm": vm, "user_data": user_data})
        connection.execute(
            sa.text("INSERT INTO vm_specs (vm, version, spec) VALUES (:vm, :version, :spec)"),
            specs,
        )
        if data:
            connection.execute(
                sa.text("INSERT INTO vm_user_data (vm, user_data) VALUES (:vm, :user_data)"), data
            )
        _tell(connection, {f"{row['vm']}|1": {"spec": row["spec"]} for row in specs})


def _tell(connection: sa.Connection, rows: dict[str, Any]) -> None:
    """Append the event that the new rows follow from, at the time of the last one."""
    counted = sa.text("UPDATE counters SET value = value + 1 WHERE name = 'events' RETURNING value")
    seq = connection.execute(counted).scalar_one()
    at_ms = connection.execute(sa.text("SELECT max(at_ms) FROM events")).scalar() or 0
    connection.execute(
        sa.text(
            "INSERT INTO events (seq, at_ms, actor, kind, subject, changes, note, tx) VALUES "
            "(:seq, :at_ms, 'roost', 'ledger.migrated', 'ledger', :changes, :note, :tx)"
        ),
        {
            "seq": seq,
            "at_ms": at_ms,
            "changes": msgspec.json.encode({"vm_specs": rows}).decode(),
            "note": "specs of VMs have a table of their own",
            "tx": f"tx-0005-{seq}",
        },
    )


def _hide_user_data(connection: sa.Connection) -> None:
    """Take the bodies out of earlier events that hold user data."""
    page = sa.text(
        "SELECT seq, changes FROM events WHERE seq > :last AND changes LIKE '%user_data%' "
        "ORDER BY seq LIMIT :length"
    )
    last = 0
    while found := connection.execute(page, {"last": last, "length": _PAGE}).all():
        last = found[-1].seq
        rows = []
        for seq, text in found:
            changes = msgspec.json.decode(text)
            for row in changes.get("vms", {}).values():
                if row is not None:
                    row.pop("asked", None)
            rows.append({"seq": seq, "changes": msgspec.json.encode(changes).decode()})
        connection.execute(sa.text("UPDATE events SET changes = :changes WHERE seq = :seq"), rows)
