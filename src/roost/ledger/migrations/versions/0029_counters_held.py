"""Holds keep extended resources, devices and NUMA cells: counters, and what hosts hold of them.

Processes of schema 0028 charge counters without a look at what is held. Where they may be there
still, no such hold is made until `roost ledger finish-upgrade`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; nothing is held of any counter."""
    op.add_column("holds", sa.Column("counters", sa.Text(), nullable=True))
    op.add_column("reservations", sa.Column("asks", sa.Text(), nullable=True))
    op.add_column(
        "host_counters",
        sa.Column("held", sa.BigInteger(), nullable=False, server_default="0"),
    )
    connection = op.get_bind()
    if connection.dialect.name == "postgresql" and _was_used(connection):
        op.execute(
            "INSERT INTO counters (name, value) VALUES ('before_counters_held', 1) "
            "ON CONFLICT DO NOTHING"
        )


def _was_used(connection: sa.Connection) -> bool:
    """Say whether any process has worked on this ledger before."""
    events = connection.execute(sa.text("SELECT value FROM counters WHERE name = 'events'"))
    leases = connection.execute(sa.text("SELECT 1 FROM leases LIMIT 1"))
    return bool(events.scalar()) or leases.first() is not None
