"""Priority classes, disruption budgets of groups, preemptions and the VMs displaced by them."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; groups have no budget until somebody sets one."""
    op.create_table(
        "priority_classes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("preempts", sa.Text(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "preemptions",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("host", sa.BigInteger(), nullable=False),
        sa.Column("victims", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("begun_ms", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("vm"),
        sqlite_with_rowid=False,
    )
    op.create_index("preemptions_host", "preemptions", ["host"])
    op.create_table(
        "displaced",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("preemptor", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("vm"),
        sqlite_with_rowid=False,
    )
    op.add_column("groups", sa.Column("budget", sa.BigInteger(), nullable=True))
    op.add_column("groups", sa.Column("budget_share", sa.BigInteger(), nullable=True))
