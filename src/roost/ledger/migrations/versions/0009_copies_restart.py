"""The restart policy that a host was told last of a copy, which a restored ledger may not know.

From here on VMs may be `elsewhere_asked`, and there are constraints (0010). Processes of schema
0008 know neither, and on PostgreSQL they may go on: until `roost ledger finish-upgrade` nobody
writes what they cannot follow, also where the upgrade to 0008 was finished.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; empty is said by agents and processes of the release before."""
    op.add_column("copies", sa.Column("restart", sa.Text(), nullable=False, server_default=""))
    connection = op.get_bind()
    if connection.dialect.name == "postgresql" and _was_used(connection):
        op.execute("INSERT INTO counters (name, value) VALUES ('release_before', 1)")


def _was_used(connection: sa.Connection) -> bool:
    """Say whether any process has worked on this ledger before."""
    events = connection.execute(sa.text("SELECT value FROM counters WHERE name = 'events'"))
    leases = connection.execute(sa.text("SELECT 1 FROM leases LIMIT 1"))
    return bool(events.scalar()) or leases.first() is not None
