"""The restart policy that a host was told last of a copy, which a restored ledger may not know."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; empty is said by agents and processes of the release before."""
    op.add_column("copies", sa.Column("restart", sa.Text(), nullable=False, server_default=""))
