"""Why a job is not running: the true cause first, each in a sentence with its numbers."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, or_, select

from roost.base.timestamps import timestamp
from roost.base.units import format_bytes, format_cpu
from roost.jobs.rented import live_machines
from roost.jobs.rows import pool_of, shown_name
from roost.ledger.jobtables import accounts, job_arrays, job_links, machines, pools
from roost.ledger.statements import find_row
from roost.model.job import Pool
from roost.wire.jobs import ExplainBody

_A, _M = job_arrays.c, machines.c


def explain(
    connection: Connection, row: Mapping[str, Any], own: Mapping[str, Any], now_ms: int
) -> ExplainBody:
    """Return why a job is where it is."""
    name = shown_name(row["array"], row["idx"], own["size"])
    state = row["state"]
    if state != "queued":
        cause, said = _not_queued(connection, row, own)
        return ExplainBody(job=name, state=state, cause=cause, sentences=said)
    found: list[tuple[str, str]] = []
    if row["not_before_ms"] > now_ms:
        found.append(
            (
                "back_off",
                f"it waits until {timestamp(row['not_before_ms'])} because its last attempt ended "
                f"with {row['reason']}",
            )
        )
    pool_row = find_row(connection, pools, {"name": own["pool"]})
    if pool_row is None:
        return ExplainBody(
            job=name, state=state, cause="pool_limit", sentences=["its pool is gone"]
        )
    pool = pool_of(pool_row["spec"])
    rows = [dict(each) for each in connection.execute(live_machines(pool.name)).mappings()]
    before = _before(connection, own)
    found += _room(pool, pool_row, rows, own, _limits(connection, pool, pool_row))
    if before and pool.ordering == "fair":
        found.append(("fairness", f"{before} queued jobs share the pool by dominant share"))
    elif before:
        found.append(("order", f"{before} jobs are looked at before it ({pool.ordering})"))
    if not found:
        found.append(("none", "there is room; it is assigned with the next plan"))
    return ExplainBody(
        job=name,
        state=state,
        cause=found[0][0],
        sentences=[said for _, said in found],
        before=before,
    )


def _not_queued(
    connection: Connection, row: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[str, list[str]]:
    state = row["state"]
    if state == "waiting":
        open_needs = (
            select(_A.id)
            .join(job_links, job_links.c.needs == _A.id)
            .where(job_links.c.array == own["id"], _A.finished_ms.is_(None))
        )
        names = [str(each[0]) for each in connection.execute(open_needs)]
        return "needs", [f"it waits for {', '.join(names)} to end"]
    if state == "scheduled":
        return "starting", [f"it is assigned to {row['machine']}, which has not begun it yet"]
    if state == "running":
        return "none", [f"it runs on {row['machine']}"]
    if state == "cancelling":
        return "none", [f"{row['machine']} was told to end it"]
    why = f" ({row['reason']}: {row['message']})" if row["reason"] else ""
    return "none", [f"it has ended: {state}{why}"]


def _before(connection: Connection, own: Mapping[str, Any]) -> int:
    """Return how many queued jobs of the pool are looked at earlier, by priority and age."""
    query = select(func.sum(_A.queued)).where(
        _A.pool == own["pool"],
        _A.finished_ms.is_(None),
        _A.id != own["id"],
        or_(
            _A.priority > own["priority"],
            (_A.priority == own["priority"]) & (_A.id < own["id"]),
        ),
    )
    return int(connection.execute(query).scalar() or 0)


def _limits(connection: Connection, pool: Pool, row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the limits that are reached."""
    found = []
    if row["machines_used"] >= pool.max_machines:
        found.append(
            ("pool_limit", f"pool {pool.name!r} has {row['machines_used']} machines, its most")
        )
    if pool.max_cpu_milli is not None and row["cpu_milli_used"] >= pool.max_cpu_milli:
        found.append(
            ("pool_limit", f"pool {pool.name!r} has {format_cpu(row['cpu_milli_used'])} cores, "
             "its most")
        )  # fmt: skip
    if pool.budget_micro is not None and row["trouble"] and not found:
        found.append(
            ("budget", f"pool {pool.name!r} spends {row['micro_used'] / 1e6:.2f} of "
             f"{pool.budget_micro / 1e6:.2f} an hour")
        )  # fmt: skip
    account = find_row(connection, accounts, {"name": pool.account}) if pool.account else None
    if account is not None:
        for name, word in (("machines", "machines"), ("cpu_milli", "millicores"), ("micro", "")):
            most, used = account[f"max_{name}"], account[f"{name}_used"]
            if most is not None and used >= most:
                cause = "budget" if name == "micro" else "account_limit"
                said = f"account {pool.account!r} has {used} of {most} {word}".rstrip()
                found.append((cause, said))
    return found


def _room(
    pool: Pool,
    pool_row: Mapping[str, Any],
    rows: list[dict[str, Any]],
    own: Mapping[str, Any],
    limits: list[tuple[str, str]],
) -> list[tuple[str, str]]:
    asked = f"{format_cpu(own['cpu_milli'])} cores and {format_bytes(own['memory_bytes'])}"
    ready = [row for row in rows if row["state"] == "ready"]
    names = ("cpu_milli", "memory_bytes", "disk_bytes")
    fits = [
        row
        for row in ready
        if all(own[n] <= row[f"{n}_capacity"] - row[f"{n}_committed"] for n in names)
    ]
    if fits:
        return []
    coming = [row for row in rows if row["state"] in ("pending", "allocating", "allocated")]
    found: list[tuple[str, str]] = []
    if coming:
        found.append(("starting", f"{len(coming)} machines are on their way"))
    found += limits
    if pool_row["trouble"]:
        found.append(("provider", pool_row["trouble"]))
    free = max((row["cpu_milli_capacity"] - row["cpu_milli_committed"] for row in ready), default=0)
    found.append(
        (
            "room",
            f"it asks for {asked}; the most that one of {len(ready)} machines has free is "
            f"{format_cpu(free)} cores",
        )
    )
    return found
