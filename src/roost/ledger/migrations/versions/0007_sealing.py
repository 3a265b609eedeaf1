"""Which key seals the ledger's secrets, and whether older processes still read them in the clear.

What is there is sealed afterwards (parts/sealedrows.py): on SQLite when the file is opened, on
PostgreSQL by `roost ledger finish-upgrade`, since processes of the release before may go on.

Two things that earlier revisions have missed are made good: a ledger that was at 0003 before that
revision got its last table, and moves that a process of schema 0001 left when only the target had
yet to take over (it gave the VM to the target first; since 0002 the target says that it has it).
"""

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, and note that what is there is in the clear."""
    op.create_table(
        "sealing_keys",
        sa.Column("slot", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("slot"),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    _add_conversations(connection)
    _end_first_moves(connection)
    if _was_used(connection):
        op.execute("INSERT INTO counters (name, value) VALUES ('clear_user_data', 1)")


def _add_conversations(connection: sa.Connection) -> None:
    if sa.inspect(connection).has_table("conversations"):
        return
    op.create_table(
        "conversations",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("host"),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO conversations SELECT number, instance, 0 FROM hosts")


def _end_first_moves(connection: sa.Connection) -> None:
    """Take VMs that were switched over to their targets for what they are: at home there."""
    switched = sa.text("SELECT * FROM vms WHERE phase = 'landing' AND target IS NULL ORDER BY id")
    rows = [dict(row) for row in connection.execute(switched).mappings()]
    for row in rows:
        row["phase"] = ""
        connection.execute(sa.text("UPDATE vms SET phase = '' WHERE id = :id"), {"id": row["id"]})
        counted = sa.text(
            "UPDATE counters SET value = value + 1 WHERE name = 'events' RETURNING value"
        )
        seq = connection.execute(counted).scalar_one()
        at_ms = connection.execute(sa.text("SELECT max(at_ms) FROM events")).scalar() or 0
        connection.execute(
            sa.text(
                "INSERT INTO events (seq, at_ms, actor, kind, subject, project, changes, note, tx) "
                "VALUES (:seq, :at_ms, 'roost', 'vm.moved', :subject, :project, :changes, :note, "
                ":tx)"
            ),
            {
                "seq": seq,
                "at_ms": at_ms,
                "subject": f"vm/{row['id']}",
                "project": row["project"],
                "changes": msgspec.json.encode({"vms": {row["id"]: row}}).decode(),
                "note": "switched over before the upgrade",
                "tx": f"tx-0007-{seq}",
            },
        )


def _was_used(connection: sa.Connection) -> bool:
    """Say whether any process has worked on this ledger before."""
    events = connection.execute(sa.text("SELECT value FROM counters WHERE name = 'events'"))
    leases = connection.execute(sa.text("SELECT 1 FROM leases LIMIT 1"))
    return bool(events.scalar()) or leases.first() is not None
