"""What hosts hold a reservation's units as: an owner of its own, which no other has ever had.

Those that were made before keep their name for it; a later one of that name has another.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the holds that are there stay whose they are."""
    op.add_column("reservations", sa.Column("held_as", sa.Text(), nullable=True))
