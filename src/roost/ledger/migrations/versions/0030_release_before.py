"""Processes of schemas 0018 to 0029 may go on beside this release: nothing is written they break.

Revisions 0009 and 0018 say so of processes before them. A ledger that was made since, or whose
upgrade was finished since, has nobody who says so: processes of schema 0019 know no flavors, those
of 0024 count hosts by their inventory alone, those of 0026 place a VM however far it is from those
that it must be near to. Until `roost ledger finish-upgrade` nobody writes what they cannot follow.
The newest revision always says so; what comes after it does it again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Note that processes of the release before may be there; a SQLite file has one process."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql" and _was_used(connection):
        op.execute(
            "INSERT INTO counters (name, value) VALUES ('release_before', 1) ON CONFLICT DO NOTHING"
        )


def _was_used(connection: sa.Connection) -> bool:
    """Say whether any process has worked on this ledger before."""
    events = connection.execute(sa.text("SELECT value FROM counters WHERE name = 'events'"))
    leases = connection.execute(sa.text("SELECT 1 FROM leases LIMIT 1"))
    return bool(events.scalar()) or leases.first() is not None
