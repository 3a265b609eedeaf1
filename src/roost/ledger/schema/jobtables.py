"""The tables of jobs, pools, machines and accounts; the rest of the schema is in `tables`.

| table | what it holds |
|---|---|
| job_arrays | what was submitted in one call: the spec of all its jobs, how many are where |
| jobs | every job of every array: its state, its present attempt and how it ended |
| job_attempts | attempts that did not end a job: it was tried again after them |
| job_logs | what attempts wrote, in pieces, up to their limit |
| job_kinds | what is always the same about a kind of job, and its parameters' schema |
| job_links | which array waits for which |
| pools | machines for a purpose: how many there may be, how many there are |
| machines | VMs that providers rent to pools, as hosts: capacity and the sums of what is assigned |
| accounts | who rents, and how much at once |
| account_secrets, machine_secrets | credentials and join tokens, sealed |

None of it is folded from events: rows are the truth, and an array of thousands would drown what
people read there. Sums (`*_used`, `*_committed`, counts of an array) are only changed relatively,
and compared in the same statement. ADR-0041 says why.
"""

from sqlalchemy import Column, Index, literal_column

from roost.ledger.schema.tables import big_number, big_sum, new_table, words

#: Counts of an array's jobs by state: `waiting` and `queued` wait, `live` have a machine.
COUNTS = ("waiting", "queued", "live", "completed", "failed", "cancelled", "lost")
#: What is limited of pools and accounts, and summed over their live machines.
RENTED = ("machines", "cpu_milli", "micro")
#: Amounts of a machine that its attempts take.
ROOM = ("cpu_milli", "memory_bytes", "disk_bytes", "attempts")


def _sums(names: tuple[str, ...], suffix: str = "") -> list[Column[object]]:
    return [big_sum(name + suffix) for name in names]


job_arrays = new_table(
    "job_arrays",
    words("id", key=True),
    words("project"),
    words("name"),
    words("pool"),
    words("kind"),  # or empty
    words("spec"),  # JSON, see wire/jobspecs.py
    big_number("size"),
    big_number("priority"),
    big_number("cpu_milli"),
    big_number("memory_bytes"),
    big_number("disk_bytes"),
    big_number("run_limit_s"),
    big_number("queue_limit_s", nullable=True),
    words("on_failure"),  # of what it depends on: fail, run
    big_number("created_ms"),
    words("created_by"),
    big_number("finished_ms", nullable=True),  # when its last job ended
    *_sums(COUNTS),
    big_sum("measured"),  # jobs whose run time is in run_ms
    big_sum("run_ms"),
    big_sum("cost_micro"),
)
Index("job_arrays_project", job_arrays.c.project, job_arrays.c.id)
_OPEN_ARRAY = job_arrays.c.finished_ms.is_(None)
Index("job_arrays_open", job_arrays.c.pool, sqlite_where=_OPEN_ARRAY, postgresql_where=_OPEN_ARRAY)
# With what each row weighs, so that retention reads the index alone.
Index("job_arrays_finished", job_arrays.c.finished_ms, job_arrays.c.size)

jobs = new_table(
    "jobs",
    words("array", key=True),
    big_number("idx", key=True),
    words("state"),  # model.job.JobState
    words("item", nullable=True),  # JSON: what differs between the jobs of an array
    big_number("attempt"),  # the number of the present one, or of the last; 0: none yet
    big_number("retries"),  # after failures of its own
    big_number("restarts"),  # after failures of ours
    words("machine", nullable=True),  # that has the present attempt
    words("ran_on"),  # the machine of the present attempt or of the last; empty: none yet
    big_number("not_before_ms"),  # back-off
    big_number("queued_ms"),
    big_number("scheduled_ms", nullable=True),
    big_number("started_ms", nullable=True),
    big_number("finished_ms", nullable=True),
    words("reason"),
    words("message"),
    big_number("exit_code", nullable=True),
    big_number("run_ms"),
    big_number("cpu_ms"),
    big_number("memory_bytes"),
    big_number("cost_micro"),
    words("outputs"),  # JSON, or empty
)
#: Written out and not as a parameter: only so do plans use the index of what is queued.
QUEUED = jobs.c.state == literal_column("'queued'")
Index("jobs_queued", jobs.c.array, jobs.c.idx, sqlite_where=QUEUED, postgresql_where=QUEUED)
_ASSIGNED = jobs.c.machine.is_not(None)
Index("jobs_assigned", jobs.c.machine, sqlite_where=_ASSIGNED, postgresql_where=_ASSIGNED)

job_attempts = new_table(
    "job_attempts",
    words("array", key=True),
    big_number("idx", key=True),
    big_number("attempt", key=True),
    words("machine"),
    words("reason"),
    words("message"),
    big_number("exit_code", nullable=True),
    big_number("scheduled_ms"),
    big_number("started_ms", nullable=True),
    big_number("ended_ms"),
)
Index("job_attempts_age", job_attempts.c.ended_ms)

job_logs = new_table(
    "job_logs",
    words("attempt", key=True),  # JOB:NUMBER
    words("stream", key=True),
    big_number("start", key=True),  # offset of its first byte
    words("data"),  # base64
    big_number("length"),
    big_number("dropped"),
    big_number("at_ms"),
)
Index("job_logs_age", job_logs.c.at_ms, job_logs.c.length)

job_links = new_table(
    "job_links",
    words("array", key=True),
    words("needs", key=True),  # the array that must have ended first
)
Index("job_links_needs", job_links.c.needs)

job_kinds = new_table(
    "job_kinds",
    words("name", key=True),
    words("project"),  # whose it is; empty: everybody's
    words("description"),
    words("spec"),  # JSON, as of job_arrays
    words("parameters_schema"),  # JSON schema
    big_number("version"),
    big_number("changed_ms"),
    words("changed_by"),
)

pools = new_table(
    "pools",
    words("name", key=True),
    words("spec"),  # JSON of model.job.Pool
    words("account"),
    big_number("max_machines"),
    big_number("max_cpu_milli", nullable=True),
    big_number("max_micro", nullable=True),  # an hour
    *_sums(RENTED, "_used"),
    big_sum("spent_micro"),  # by machines that are gone
    big_sum("machine_ms"),  # of machines that are gone
    words("trouble"),  # what its provider said last, or empty
    big_number("version"),
    big_number("created_ms"),
    words("changed_by"),
)

machines = new_table(
    "machines",
    words("id", key=True),
    words("pool"),
    words("account"),
    words("type"),  # JSON of model.job.MachineType
    words("market"),
    words("region"),
    words("state"),  # model.job.MachineState
    words("cloud_id", nullable=True),
    big_number("price_micro"),  # an hour
    big_number("cpu_milli_capacity"),
    big_number("memory_bytes_capacity"),
    big_number("disk_bytes_capacity"),
    big_number("attempts_capacity"),
    *_sums(ROOM, "_committed"),
    big_number("launches"),  # how often its provider was asked
    big_number("not_before_ms"),  # back-off
    big_number("heard"),  # grows while its worker polls
    words("instance"),  # of the worker that spoke last
    big_number("sequence"),  # of its last poll
    words("reason"),  # why it is where it is
    big_number("created_ms"),
    big_number("state_ms"),  # since when it is in its state
    big_number("idle_ms", nullable=True),  # since when it has nothing to do
    big_number("rented_ms", nullable=True),  # when its provider said that it is there
    big_number("ended_ms", nullable=True),
    words("claimed_by"),  # the process that asks its provider, or empty
    words("containers"),  # podman, docker or empty
)
_LIVE = machines.c.ended_ms.is_(None)
Index("machines_live", machines.c.pool, sqlite_where=_LIVE, postgresql_where=_LIVE)
Index("machines_ended", machines.c.ended_ms)

accounts = new_table(
    "accounts",
    words("name", key=True),
    words("project"),  # whose it is; empty: everybody's
    words("provider"),
    words("options"),  # JSON, no secrets
    big_number("max_machines", nullable=True),
    big_number("max_cpu_milli", nullable=True),
    big_number("max_micro", nullable=True),  # an hour
    *_sums(RENTED, "_used"),
    big_number("version"),
    big_number("created_ms"),
    words("changed_by"),
)

account_secrets = new_table("account_secrets", words("account", key=True), words("secret"))
machine_secrets = new_table("machine_secrets", words("machine", key=True), words("secret"))
