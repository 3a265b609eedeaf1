"""What is queued and what projects have, by pool: read as arrays, for plans and explanations."""

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, Select, func, select

from roost.jobs.deciding.ordering import Queued, Used
from roost.ledger.schema.jobtables import job_arrays

_A = job_arrays.c
#: Ends of an array from which on its jobs are expected to run as long as those did.
_MEASURED = 3

_QUEUED = (
    select(
        _A.id, _A.project, _A.pool, _A.priority, _A.cpu_milli, _A.memory_bytes, _A.disk_bytes,
        _A.queued, _A.measured, _A.run_ms, _A.run_limit_s, _A.live, _A.created_ms,
    )
    .where(_A.finished_ms.is_(None), _A.queued > 0)
    .order_by(_A.id)
)  # fmt: skip
_USED = (
    select(
        _A.pool,
        _A.project,
        func.sum(_A.live * _A.cpu_milli),
        func.sum(_A.live * _A.memory_bytes),
    )
    .where(_A.finished_ms.is_(None), _A.live > 0)
    .group_by(_A.pool, _A.project)
)


def read_queued(
    connection: Connection, now_ms: int, pool: str | None = None
) -> dict[str, list[Queued]]:
    """Return the queued jobs of every pool, or of one, as arrays of equal ones."""
    found: dict[str, list[Queued]] = defaultdict(list)
    for each in connection.execute(_of(_QUEUED, pool)):
        known = each.measured >= _MEASURED
        run_s = each.run_ms / 1000 / each.measured if known else float(each.run_limit_s)
        waits_s = 0.0 if each.live else max(0.0, (now_ms - each.created_ms) / 1000)
        found[each.pool].append(
            Queued(
                each.id, each.project, each.cpu_milli, each.memory_bytes, each.disk_bytes,
                each.queued, each.priority, run_s, waits_s,
            )
        )  # fmt: skip
    return found


def read_used(connection: Connection, pool: str | None = None) -> dict[str, Used]:
    """Return what the jobs of every project have of every pool, or of one."""
    found: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for name, project, cpu, memory in connection.execute(_of(_USED, pool)):
        found[str(name)][str(project)] = int(cpu), int(memory)
    return dict(found)


def _of(query: Select[Any], pool: str | None) -> Select[Any]:
    return query if pool is None else query.where(_A.pool == pool)
