"""The first schema: VMs, claims, hosts, groups, projects and all that stands beside them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table, the counters and the default project."""
    op.create_table(
        "claims",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("counters", sa.Text(), nullable=False),
        sa.Column("devices", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cells", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_index("claims_host", "claims", ["host"], unique=False)
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "decisions",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("vm", "snapshot"),
        sqlite_with_rowid=False,
    )
    op.create_index("decisions_age", "decisions", ["at_ms"], unique=False)
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("tx", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "fences",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("proof", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("host", "epoch"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("hard", sa.Boolean(), nullable=False),
        sa.Column("max_skew", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("weight", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("selector", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "host_amounts",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cpu_milli_capacity", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memory_bytes_capacity", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("disk_bytes_capacity", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vms_capacity", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cpu_milli_committed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memory_bytes_committed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("disk_bytes_committed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vms_committed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("host"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "host_counters",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("counter", sa.Text(), nullable=False),
        sa.Column("capacity", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("committed", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("host", "counter"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "host_liveness",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("evidence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("host"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hosts",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("inventory", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=True),
        sa.Column("health", sa.Text(), nullable=False),
        sa.Column("admin", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("guard_stop_s", sa.Float(), nullable=True),
        sa.Column("fenced", sa.Text(), nullable=True),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("registered_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("name", name="hosts_name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("scope", "key"),
        sqlite_with_rowid=False,
    )
    op.create_index("idempotency_age", "idempotency", ["created_ms"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("renewals", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "members",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("vm", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "vm"),
        sqlite_with_rowid=False,
    )
    op.create_index("members_vm", "members", ["vm"], unique=False)
    op.create_table(
        "projects",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cpu_milli_quota", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("memory_bytes_quota", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("disk_bytes_quota", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("vms_quota", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("cpu_milli_used", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memory_bytes_used", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("disk_bytes_used", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vms_used", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "samples",
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("host", "vm", "at_ms"),
        sqlite_with_rowid=False,
    )
    op.create_index("samples_age", "samples", ["at_ms"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tombstones",
        sa.Column("vm", sa.Text(), nullable=False),
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("vm", "host"),
        sqlite_with_rowid=False,
    )
    op.create_index("tombstones_host", "tombstones", ["host"], unique=False)
    op.create_table(
        "vms",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("cpu_milli", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("disk_bytes", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("on_no_fit", sa.Text(), nullable=False),
        sa.Column("restart", sa.Text(), nullable=False),
        sa.Column("desired", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("restarts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("host", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("target", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("observed", sa.Text(), nullable=False),
        sa.Column("observed_generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("pending", sa.Text(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project", "name", name="vms_name"),
        sqlite_with_rowid=False,
    )
    op.create_index("vms_host", "vms", ["host"], unique=False)
    op.create_index(
        "vms_target",
        "vms",
        ["target"],
        unique=False,
        sqlite_where=sa.text("target IS NOT NULL"),
        postgresql_where=sa.text("target IS NOT NULL"),
    )
    op.create_index(
        "vms_waiting",
        "vms",
        ["priority"],
        unique=False,
        sqlite_where=sa.text("pending IS NOT NULL"),
        postgresql_where=sa.text("pending IS NOT NULL"),
    )
    op.execute(
        "INSERT INTO counters (name, value) VALUES ('events', 0), ('rules', 0), ('hosts', 0)"
    )
    op.execute(
        "INSERT INTO projects (name, cpu_milli_used, memory_bytes_used, disk_bytes_used, vms_used) "
        "VALUES ('default', 0, 0, 0, 0)"
    )
