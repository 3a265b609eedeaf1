"""Find the moves of plans by how and when they ended: every draft asks for those of a day."""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    op.create_index("plan_moves_ended", "plan_moves", ["state", "ended_ms"])
