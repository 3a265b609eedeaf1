"""Which key seals the ledger's secrets, and whether older processes still read them in the clear.

What is there is sealed afterwards (parts/sealedrows.py): on SQLite when the file is opened, on
PostgreSQL by `roost ledger finish-upgrade`, since processes of the release before may go on.
"""

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
    if _was_used(op.get_bind()):
        op.execute("INSERT INTO counters (name, value) VALUES ('clear_user_data', 1)")


def _was_used(connection: sa.Connection) -> bool:
    """Say whether any process has worked on this ledger before."""
    events = connection.execute(sa.text("SELECT value FROM counters WHERE name = 'events'"))
    leases = connection.execute(sa.text("SELECT 1 FROM leases LIMIT 1"))
    return bool(events.scalar()) or leases.first() is not None
