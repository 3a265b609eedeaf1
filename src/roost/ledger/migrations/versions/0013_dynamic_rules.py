"""Rules that hold under a condition, and rules that relax for a VM that waits."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty: rules of before hold always and never relax; and the table."""
    for column in (
        sa.Column("applies_when", sa.Text(), nullable=True),
        sa.Column("applies_until", sa.Text(), nullable=True),
        sa.Column("time_zone", sa.Text(), nullable=True),
        sa.Column("dwell_s", sa.BigInteger(), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=True),
        sa.Column("switched_ms", sa.BigInteger(), nullable=True),
        sa.Column("relax_after_s", sa.BigInteger(), nullable=True),
    ):
        op.add_column("constraints", column)
    op.create_table(
        "relaxations",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("constraint_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("relaxed_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("vm", "constraint_id"),
        sqlite_with_rowid=False,
    )
