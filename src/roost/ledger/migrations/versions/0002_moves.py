"""How a VM is moved, beside it; and readings by name beside the samples."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("vms", sa.Column("move", sa.Text(), nullable=True))
    op.add_column("samples", sa.Column("more", sa.Text(), nullable=True))
