"""Jobs: arrays of them, their attempts and logs, pools, machines, accounts and their secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=nullable)


def _sum(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "job_arrays",
        _text("id"),
        _text("project"),
        _text("name"),
        _text("pool"),
        _text("kind"),
        _text("spec"),
        _number("size"),
        _number("priority"),
        _number("cpu_milli"),
        _number("memory_bytes"),
        _number("disk_bytes"),
        _number("run_limit_s"),
        _number("queue_limit_s", nullable=True),
        _text("on_failure"),
        _number("created_ms"),
        _text("created_by"),
        _number("finished_ms", nullable=True),
        _sum("waiting"),
        _sum("queued"),
        _sum("live"),
        _sum("completed"),
        _sum("failed"),
        _sum("cancelled"),
        _sum("lost"),
        _sum("measured"),
        _sum("run_ms"),
        _sum("cost_micro"),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_index("job_arrays_finished", "job_arrays", ["finished_ms"])
    where = sa.text("finished_ms IS NULL")
    op.create_index(
        "job_arrays_open", "job_arrays", ["pool"], sqlite_where=where, postgresql_where=where
    )
    op.create_index("job_arrays_project", "job_arrays", ["project", "id"])
    op.create_table(
        "jobs",
        _text("array"),
        _number("idx"),
        _text("state"),
        _text("item", nullable=True),
        _number("attempt"),
        _number("retries"),
        _number("restarts"),
        _text("machine", nullable=True),
        _text("ran_on"),
        _number("not_before_ms"),
        _number("queued_ms"),
        _number("scheduled_ms", nullable=True),
        _number("started_ms", nullable=True),
        _number("finished_ms", nullable=True),
        _text("reason"),
        _text("message"),
        _number("exit_code", nullable=True),
        _number("run_ms"),
        _number("cpu_ms"),
        _number("memory_bytes"),
        _number("cost_micro"),
        _text("outputs"),
        sa.PrimaryKeyConstraint("array", "idx"),
        sqlite_with_rowid=False,
    )
    where = sa.text("machine IS NOT NULL")
    op.create_index(
        "jobs_assigned", "jobs", ["machine"], sqlite_where=where, postgresql_where=where
    )
    where = sa.text("state = 'queued'")
    op.create_index(
        "jobs_queued", "jobs", ["array", "idx"], sqlite_where=where, postgresql_where=where
    )
    op.create_table(
        "job_attempts",
        _text("array"),
        _number("idx"),
        _number("attempt"),
        _text("machine"),
        _text("reason"),
        _text("message"),
        _number("exit_code", nullable=True),
        _number("scheduled_ms"),
        _number("started_ms", nullable=True),
        _number("ended_ms"),
        sa.PrimaryKeyConstraint("array", "idx", "attempt"),
        sqlite_with_rowid=False,
    )
    op.create_index("job_attempts_age", "job_attempts", ["ended_ms"])
    op.create_table(
        "job_logs",
        _text("attempt"),
        _text("stream"),
        _number("start"),
        _text("data"),
        _number("length"),
        _number("dropped"),
        _number("at_ms"),
        sa.PrimaryKeyConstraint("attempt", "stream", "start"),
        sqlite_with_rowid=False,
    )
    op.create_index("job_logs_age", "job_logs", ["at_ms"])
    op.create_table(
        "job_links",
        _text("array"),
        _text("needs"),
        sa.PrimaryKeyConstraint("array", "needs"),
        sqlite_with_rowid=False,
    )
    op.create_index("job_links_needs", "job_links", ["needs"])
    op.create_table(
        "job_kinds",
        _text("name"),
        _text("project"),
        _text("description"),
        _text("spec"),
        _text("parameters_schema"),
        _number("version"),
        _number("changed_ms"),
        _text("changed_by"),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "pools",
        _text("name"),
        _text("spec"),
        _text("account"),
        _number("max_machines"),
        _number("max_cpu_milli", nullable=True),
        _number("max_micro", nullable=True),
        _sum("machines_used"),
        _sum("cpu_milli_used"),
        _sum("micro_used"),
        _sum("spent_micro"),
        _sum("machine_ms"),
        _text("trouble"),
        _number("version"),
        _number("created_ms"),
        _text("changed_by"),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "machines",
        _text("id"),
        _text("pool"),
        _text("account"),
        _text("type"),
        _text("market"),
        _text("region"),
        _text("state"),
        _text("cloud_id", nullable=True),
        _number("price_micro"),
        _number("cpu_milli_capacity"),
        _number("memory_bytes_capacity"),
        _number("disk_bytes_capacity"),
        _number("attempts_capacity"),
        _sum("cpu_milli_committed"),
        _sum("memory_bytes_committed"),
        _sum("disk_bytes_committed"),
        _sum("attempts_committed"),
        _number("launches"),
        _number("not_before_ms"),
        _number("heard"),
        _text("instance"),
        _number("sequence"),
        _text("reason"),
        _number("created_ms"),
        _number("state_ms"),
        _number("idle_ms", nullable=True),
        _number("rented_ms", nullable=True),
        _number("ended_ms", nullable=True),
        _text("claimed_by"),
        _text("containers"),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_index("machines_ended", "machines", ["ended_ms"])
    where = sa.text("ended_ms IS NULL")
    op.create_index(
        "machines_live", "machines", ["pool"], sqlite_where=where, postgresql_where=where
    )
    op.create_table(
        "accounts",
        _text("name"),
        _text("project"),
        _text("provider"),
        _text("options"),
        _number("max_machines", nullable=True),
        _number("max_cpu_milli", nullable=True),
        _number("max_micro", nullable=True),
        _sum("machines_used"),
        _sum("cpu_milli_used"),
        _sum("micro_used"),
        _number("version"),
        _number("created_ms"),
        _text("changed_by"),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "account_secrets",
        _text("account"),
        _text("secret"),
        sa.PrimaryKeyConstraint("account"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "machine_secrets",
        _text("machine"),
        _text("secret"),
        sa.PrimaryKeyConstraint("machine"),
        sqlite_with_rowid=False,
    )
