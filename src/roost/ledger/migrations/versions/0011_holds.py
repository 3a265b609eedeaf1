"""Room that hosts keep for reservations and waiting VMs; claims that end, or draw on it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_LIMITS = ("cpu_milli", "memory_bytes", "disk_bytes", "vms")


def upgrade() -> None:
    """Add the table and the columns; nothing is held, no claim ends."""
    op.create_table(
        "holds",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _LIMITS),
        sa.Column("windows", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_index("holds_host", "holds", ["host"])
    op.create_index("holds_owner", "holds", ["owner"])
    for name in _LIMITS:
        op.add_column(
            "host_amounts",
            sa.Column(f"{name}_held", sa.BigInteger(), nullable=False, server_default="0"),
        )
    op.add_column("claims", sa.Column("until_ms", sa.BigInteger(), nullable=True))
    op.add_column("claims", sa.Column("draws_on", sa.Text(), nullable=True))
    special = sa.text("until_ms IS NOT NULL OR draws_on IS NOT NULL")
    op.create_index(
        "claims_special", "claims", ["host"], sqlite_where=special, postgresql_where=special
    )
