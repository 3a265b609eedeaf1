"""How long VMs lived: those that ended until they are counted, and counts by class and age."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "vm_ends",
        _text("vm"),
        _text("project"),
        _number("cpu_milli"),
        _number("memory_bytes"),
        _text("image"),
        _number("lived_s"),
        _number("at_ms"),
        sa.PrimaryKeyConstraint("vm"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "lifetimes",
        _number("cpu_milli"),
        _number("memory_bytes"),
        _text("project"),
        _text("image"),
        _number("age_bin"),
        _number("weight"),
        _number("seen_ms"),
        sa.PrimaryKeyConstraint("cpu_milli", "memory_bytes", "project", "image", "age_bin"),
        sqlite_with_rowid=False,
    )
    op.create_index("lifetimes_age", "lifetimes", ["seen_ms"])
