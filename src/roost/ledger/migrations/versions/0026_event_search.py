"""Events are found by what they are about and by their kind."""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make both indexes."""
    op.create_index("events_subject", "events", ["subject", "seq"])
    op.create_index("events_kind", "events", ["kind", "seq"])
