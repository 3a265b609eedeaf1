"""Claims by host only where they are no VM's home, and none by VM: their ids begin with it.

Every create wrote two entries that the rows of VMs and the ids of claims stand for as well.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Exchange the indexes; a version that does not know it finds claims as before, but slower."""
    if op.get_context().dialect.name == "postgresql":
        # All at once: an older process that reads claims and then writes them would be waited for
        # by the second lock while it waits for the first.
        op.execute("LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")
    op.create_index(
        "claims_elsewhere",
        "claims",
        ["host"],
        unique=False,
        if_not_exists=True,
        sqlite_where=sa.text("kind != 'run'"),
        postgresql_where=sa.text("kind != 'run'"),
    )
    op.drop_index("claims_host", "claims", if_exists=True)
    op.drop_index("claims_vm", "claims", if_exists=True)
