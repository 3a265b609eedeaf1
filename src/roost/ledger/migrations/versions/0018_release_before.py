"""Processes of schema 0010 may go on beside this release: nothing is written that they break.

They know no holds, reservations, policies, ends of VMs or preemption, and would give away what is
held. Revision 0009 says so of processes before it; a ledger that was made since, or whose upgrade
was finished since, has nobody who says so. Until `roost ledger finish-upgrade` nobody writes what
they cannot follow.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
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
