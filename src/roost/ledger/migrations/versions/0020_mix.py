"""What is asked of the fleet, and the mixes of typical requests that decisions went by."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; what was asked before is not known, and the VMs that run stand for it."""
    op.create_table(
        "asked",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("weight", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "mixes",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
        sqlite_with_rowid=False,
    )
    op.create_index("mixes_age", "mixes", ["at_ms"])
