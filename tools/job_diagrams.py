"""Draw the diagrams of jobs from the code: states, schema, classes, and the life of a job.

`python tools/job_diagrams.py` writes docs/reference/job-diagrams.md; a test compares it.
"""

import dataclasses
import re
from pathlib import Path

from roost.ledger.schema import jobtables
from roost.model import job as model

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "job-diagrams.md"
TABLES = (
    "job_arrays", "jobs", "job_attempts", "job_logs", "job_links", "job_kinds", "pools", "machines",
    "accounts", "account_secrets", "machine_secrets",
)  # fmt: skip
#: Which table names a row of which other one.
LINKS = (
    ("job_arrays", "jobs", "array"), ("jobs", "job_attempts", "array, idx"),
    ("job_arrays", "job_links", "array, needs"), ("pools", "job_arrays", "pool"),
    ("pools", "machines", "pool"), ("accounts", "pools", "account"),
    ("machines", "jobs", "machine"),
    ("accounts", "account_secrets", "account"), ("machines", "machine_secrets", "machine"),
    ("job_kinds", "job_arrays", "kind"), ("jobs", "job_logs", "attempt"),
)  # fmt: skip
CLASSES = (
    model.JobSpec, model.Input, model.Output, model.JobKind, model.Pool, model.Account,
    model.MachineType, model.Launch, model.Bootstrap, model.CloudMachine,
)  # fmt: skip
LIFE = """sequenceDiagram
    participant U as user
    participant D as jobs.desk
    participant L as ledger
    participant P as jobs.planner
    participant R as jobs.renting
    participant C as provider
    participant W as worker
    U->>D: submit
    D->>L: array and jobs, queued
    D-->>U: id
    P->>L: what waits, which machines
    P->>P: the engine places, the mix buys
    P->>L: machine, pending (limits compared)
    R->>L: claim the machine
    R->>C: launch, token = machine
    C-->>R: it is there
    W->>L: join, first poll: ready
    P->>L: jobs scheduled, machine charged
    W->>L: poll: running
    W->>L: poll: finished (again until acknowledged)
    L-->>W: acknowledged
    U->>D: result, logs
    P->>L: idle for its grace: returning
    R->>C: terminate"""


def states(table: dict[str, tuple[str, ...]], first: str) -> str:
    """Return a table of transitions as a state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    for state, following in table.items():
        lines += [f"    {state} --> {to}" for to in following]
        if not following:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines)


def schema() -> str:
    """Return the tables as an entity-relationship diagram."""
    lines = ["erDiagram"]
    for name in TABLES:
        table = getattr(jobtables, name)
        lines.append(f"    {name} {{")
        for column in table.columns:
            kind = "text" if "TEXT" in str(column.type) else "bigint"
            key = " PK" if column.primary_key else ""
            lines.append(f"        {kind} {column.name}{key}")
        lines.append("    }")
    lines += [f'    {one} ||--o{{ {many} : "{by}"' for one, many, by in LINKS]
    return "\n".join(lines)


def classes() -> str:
    """Return the nouns of the model as a class diagram."""
    lines = ["classDiagram"]
    names = {kind.__name__ for kind in CLASSES}
    for kind in CLASSES:
        lines.append(f"    class {kind.__name__} {{")
        lines += [f"        {field.name}" for field in dataclasses.fields(kind)]
        lines.append("    }")
    for kind in CLASSES:
        for field in dataclasses.fields(kind):
            said = getattr(field.type, "__name__", "") + " " + str(field.type)
            known = names & set(re.findall(r"\w+", said))
            lines += [f"    {kind.__name__} --> {each} : {field.name}" for each in sorted(known)]
    return "\n".join(lines)


def page() -> str:
    """Return the whole page."""
    parts = [
        "# Diagrams of jobs",
        "Drawn from the code by `tools/job_diagrams.py`; a test fails when they differ from it.",
    ]
    for title, text in (
        ("Classes", classes()),
        ("Life of a job", LIFE),
        ("States of a job", states(dict(model.JOB_TRANSITIONS), "queued")),
        ("States of a machine", states(dict(model.MACHINE_TRANSITIONS), "pending")),
        ("Schema", schema()),
    ):
        parts += [f"## {title}", f"```mermaid\n{text}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
