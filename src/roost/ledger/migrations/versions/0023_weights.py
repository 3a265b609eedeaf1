"""The indexes by age of arrays and logs have what each row weighs, for retention by sums."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_INDEXES = (
    ("job_arrays_finished", "job_arrays", ["finished_ms", "size"]),
    ("job_logs_age", "job_logs", ["at_ms", "length"]),
)


def upgrade() -> None:
    """Make both indexes anew."""
    for name, table, columns in _INDEXES:
        op.drop_index(name, table_name=table)
        op.create_index(name, table, columns)
