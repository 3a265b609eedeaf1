"""Hosts: taints, overcommitment and reserve that operators set in place of the agents' own."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; hosts have what they registered with until somebody sets something."""
    op.add_column("hosts", sa.Column("settings", sa.Text(), nullable=True))
