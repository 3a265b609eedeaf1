"""Jobs as answers: arrays, jobs, logs and what they cost, read from one view of the ledger.

A member sees the jobs of its own project; what belongs to another is as if it were not there.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from roost.base.errors import NotFound
from roost.base.timestamps import timestamp
from roost.jobs.books import job_name
from roost.jobs.rows import parse_job, plain, shown_name, spec_of
from roost.ledger.schema.jobtables import (
    COUNTS,
    job_arrays,
    job_attempts,
    job_links,
    job_logs,
    jobs,
)
from roost.ledger.writes.statements import find_row, find_rows
from roost.model.job import FINAL, INTERNAL, attempt_id
from roost.parts.access import Principal
from roost.wire import jobs as w

_A, _J, _L = job_arrays.c, jobs.c, job_logs.c


def _moment(ms: int | None) -> str | None:
    return None if ms is None else timestamp(ms)


# Arrays


def array_row(connection: Connection, name: str, who: Principal) -> dict[str, Any]:
    """Return the row of an array that the caller may see."""
    row = find_row(connection, job_arrays, {"id": name})
    if row is None or (who.project is not None and row["project"] != who.project):
        raise NotFound(f"there is no job {name!r}", job=name)
    return row


def array_state(row: Mapping[str, Any]) -> str:
    """Return one word for how far an array has come."""
    if row["finished_ms"] is None:
        if row["live"] or row["size"] > row["queued"] + row["waiting"]:
            return "running"
        return "queued" if row["queued"] else "waiting"
    for state in ("lost", "failed", "cancelled"):
        if row[state]:
            return state
    return "completed"


def _array(row: Mapping[str, Any]) -> dict[str, Any]:
    left = row["waiting"] + row["queued"] + row["live"]
    mean_ms = row["run_ms"] / row["measured"] if row["measured"] else None
    done = row["completed"]
    estimate = None if not done else row["cost_micro"] + left * row["cost_micro"] // done
    return {
        "id": row["id"],
        "name": row["name"],
        "project": row["project"],
        "pool": row["pool"],
        "kind": row["kind"] or None,
        "state": array_state(row),
        "size": row["size"],
        "jobs": w.JobCounts(**{name: row[name] for name in COUNTS}),
        "priority": row["priority"],
        "created_at": timestamp(row["created_ms"]),
        "created_by": row["created_by"],
        "finished_at": _moment(row["finished_ms"]),
        "cost_micro": row["cost_micro"],
        "estimate_micro": estimate,
        "estimate_s": None if mean_ms is None else round(mean_ms / 1000, 3),
    }


def array_body(row: Mapping[str, Any]) -> w.ArrayBody:
    """Return an array as it is told."""
    return w.ArrayBody(**_array(row))


def array_detail(connection: Connection, name: str, who: Principal) -> w.ArrayDetail:
    """Return an array with its spec and what it waits for."""
    row = array_row(connection, parse_job(name)[0], who)
    needs = [each["needs"] for each in find_rows(connection, job_links, {"array": row["id"]})]
    return w.ArrayDetail(**_array(row), spec=plain(spec_of(row["spec"])), needs=needs)


def array_page(connection: Connection, asked: w.ListArrays, who: Principal) -> w.ArrayPage:
    """Return arrays, the newest first."""
    query = select(job_arrays).order_by(_A.id.desc()).limit(asked.limit + 1)
    project = who.project or asked.project
    if project is not None:
        query = query.where(_A.project == project)
    if asked.pool is not None:
        query = query.where(_A.pool == asked.pool)
    if asked.state is not None:
        is_open = _A.finished_ms.is_(None)
        query = query.where(is_open if asked.state == "open" else ~is_open)
    if asked.after is not None:
        query = query.where(_A.id < asked.after)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    found = [array_body(row) for row in rows[: asked.limit]]
    more = len(rows) > asked.limit
    return w.ArrayPage(arrays=found, next=found[-1].id if more else None)


# Jobs


def job_row(
    connection: Connection, name: str, who: Principal
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rows of a job and of its array; an array of one job is that job."""
    array, index = parse_job(name)
    own = array_row(connection, array, who)
    if index is None and own["size"] > 1:
        raise NotFound(
            f"{name!r} has {own['size']} jobs; {name}.0 is the first of them",
            job=name,
            size=own["size"],
        )
    row = find_row(connection, jobs, {"array": array, "idx": index or 0})
    if row is None:
        raise NotFound(f"there is no job {name!r}; {array!r} has {own['size']}", job=name)
    return row, own


def kept_outputs(row: Mapping[str, Any]) -> list[w.KeptOutput]:
    """Return what a job has left, as its worker has said."""
    return msgspec.json.decode(row["outputs"] or "[]", type=list[w.KeptOutput])


def _job(row: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": shown_name(row["array"], row["idx"], own["size"]),
        "array": row["array"],
        "index": row["idx"],
        "name": own["name"],
        "project": own["project"],
        "pool": own["pool"],
        "state": row["state"],
        "item": None if row["item"] is None else msgspec.json.decode(row["item"]),
        "attempt": row["attempt"],
        "machine": row["machine"] or row["ran_on"] or None,
        "reason": row["reason"],
        "message": row["message"],
        "internal": row["reason"] in INTERNAL,
        "exit_code": row["exit_code"],
        "queued_at": timestamp(row["queued_ms"]),
        "scheduled_at": _moment(row["scheduled_ms"]),
        "started_at": _moment(row["started_ms"]),
        "finished_at": _moment(row["finished_ms"]),
        "run_ms": row["run_ms"],
        "cpu_ms": row["cpu_ms"],
        "memory_bytes": row["memory_bytes"],
        "cost_micro": row["cost_micro"],
        "outputs": kept_outputs(row),
    }


def job_detail(connection: Connection, name: str, who: Principal) -> w.JobDetail:
    """Return a job with its earlier attempts."""
    row, own = job_row(connection, name, who)
    before = find_rows(connection, job_attempts, {"array": row["array"], "idx": row["idx"]})
    attempts = [
        w.AttemptBody(
            attempt=each["attempt"],
            machine=each["machine"],
            reason=each["reason"],
            message=each["message"],
            exit_code=each["exit_code"],
            scheduled_at=timestamp(each["scheduled_ms"]),
            started_at=_moment(each["started_ms"]),
            ended_at=timestamp(each["ended_ms"]),
        )
        for each in before
    ]
    return w.JobDetail(**_job(row, own), attempts=attempts)


def job_page(connection: Connection, asked: w.ListJobs, who: Principal) -> w.JobPage:
    """Return jobs of an array in the order of their index."""
    own = array_row(connection, parse_job(asked.array)[0], who)
    after = -1
    if asked.after is not None:
        after = int(asked.after) if asked.after.isdigit() and len(asked.after) < 10 else 2**31
    query = select(jobs).where(_J.array == own["id"], _J.idx > after)
    if asked.state is not None:
        query = query.where(_J.state == asked.state)
    query = query.order_by(_J.idx).limit(asked.limit + 1)
    rows = [dict(row) for row in connection.execute(query).mappings()]
    found = [w.JobBody(**_job(row, own)) for row in rows[: asked.limit]]
    more = len(rows) > asked.limit
    return w.JobPage(jobs=found, next=str(found[-1].index) if more else None)


# Logs


def log_name(machine: str, array: str, index: int, attempt: int) -> str:
    """Return what the log of an attempt is kept under: only its own machine adds to it."""
    return f"{machine}/{attempt_id(job_name(array, index), attempt)}"


def read_log(connection: Connection, name: str, asked: w.ReadLogs, who: Principal) -> w.LogBody:
    """Return a piece of what a job has written."""
    row, own = job_row(connection, name, who)
    number = asked.attempt or row["attempt"]
    machine, over = row["ran_on"], row["state"] in FINAL or row["machine"] is None
    if number != row["attempt"]:
        key = {"array": row["array"], "idx": row["idx"], "attempt": number}
        before = find_row(connection, job_attempts, key)
        if before is None:
            raise NotFound(f"job {name!r} has no attempt {number}", job=name, attempt=number)
        machine, over = before["machine"], True
    attempt = log_name(machine, row["array"], row["idx"], number)
    query = (
        select(_L.start, _L.length, _L.data)
        .where(
            _L.attempt == attempt,
            _L.stream == asked.stream,
            _L.start + _L.length > asked.start,
        )
        .order_by(_L.start)
    )
    data = b""
    for start, length, text in connection.execute(query):
        if start > asked.start + len(data) or len(data) >= asked.limit:
            break
        data += base64.b64decode(text)[asked.start + len(data) - start : length]
    more = len(data) > asked.limit
    data = data[: asked.limit]
    summed = select(func.sum(_L.dropped), func.max(_L.start + _L.length)).where(
        _L.attempt == attempt, _L.stream == asked.stream
    )
    dropped, end = connection.execute(summed).one()
    after = asked.start + len(data)
    return w.LogBody(
        job=shown_name(row["array"], row["idx"], own["size"]),
        attempt=number,
        stream=asked.stream,
        start=asked.start,
        next=after,
        data=data,
        ended=over and not more and after >= int(end or 0),
        dropped=int(dropped or 0),
    )
