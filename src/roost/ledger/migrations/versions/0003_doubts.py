"""What is not sure after an old copy was restored; and which connection of a host spoke last."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "doubts",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("vm"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "roll_call",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("answered", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "copies",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("vm", "host"),
        sqlite_with_rowid=False,
    )
    op.create_index("copies_host", "copies", ["host"], unique=False)
    op.create_table(
        "conversations",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("host"),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO conversations SELECT number, instance, 0 FROM hosts")
