"""Since when a VM is where a hard rule does not want it."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; what is wrong already is found, and begins, at the next look."""
    op.create_table(
        "violations",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("constraint_id", sa.Text(), nullable=False),
        sa.Column("host", sa.BigInteger(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("vm", "constraint_id"),
        sqlite_with_rowid=False,
    )
