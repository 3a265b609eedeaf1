"""Claims by VM: without it every question about one VM's claims reads them all."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; a version that does not know it runs beside this one as before."""
    op.create_index("claims_vm", "claims", ["vm"], unique=False, if_not_exists=True)
