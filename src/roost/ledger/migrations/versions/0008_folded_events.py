"""Rows that old events lead to, so that those events need not be kept for good."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the base of the events; nothing is folded into it yet, so that older versions go on."""
    op.create_table(
        "folded_rows",
        sa.Column("noun", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("row", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("noun", "key"),
        sqlite_with_rowid=False,
    )
    op.create_index("folded_rows_owner", "folded_rows", ["owner"], unique=False)
    op.execute("INSERT INTO counters (name, value) VALUES ('folded', 0)")
