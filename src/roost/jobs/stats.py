"""What jobs did and cost: of all, or of a project, a pool or an account."""

from typing import Any

from sqlalchemy import Connection, func, select

from roost.jobs.rented import rent_micro
from roost.ledger.schema.jobtables import COUNTS, QUEUED, job_arrays, jobs, machines, pools
from roost.parts.access import Principal
from roost.wire import jobs as w

_A, _J, _M, _P = job_arrays.c, jobs.c, machines.c, pools.c
#: Waiting jobs whose times are looked at.
_SAMPLE = 10_000


def read_stats(
    connection: Connection, asked: w.AskStats, who: Principal, now_ms: int
) -> w.StatsBody:
    """Return the counts and sums of what is asked for."""
    project = who.project or asked.project
    which: list[Any] = []
    if project is not None:
        which.append(_A.project == project)
    if asked.pool is not None:
        which.append(_A.pool == asked.pool)
    if asked.account is not None:
        which.append(_A.pool.in_(select(_P.name).where(_P.account == asked.account)))
    sums = select(
        func.count(), *(func.sum(job_arrays.c[name]) for name in COUNTS),
        func.sum(_A.run_ms), func.sum(_A.cost_micro),
    ).where(*which)  # fmt: skip
    arrays, *rest = connection.execute(sums).one()
    numbers = [int(each or 0) for each in rest]
    counts = dict(zip(COUNTS, numbers, strict=False))
    run_ms, cost = numbers[-2:]
    hours, rent, running = _rented(connection, asked, project, now_ms)
    waiting = (
        select(_J.queued_ms)
        .join(job_arrays, _A.id == _J.array)
        .where(QUEUED, *which)
        .order_by(_J.queued_ms)
        .limit(_SAMPLE)
    )
    ages = [max(0, now_ms - int(row[0])) / 1000 for row in connection.execute(waiting)]
    return w.StatsBody(
        jobs=w.JobCounts(**counts),
        arrays=int(arrays),
        running_machines=running,
        machine_hours=round(hours, 4),
        rent_micro=rent,
        cost_micro=cost,
        waiting_s_p50=ages[len(ages) // 2] if ages else None,
        waiting_s_most=ages[0] if ages else None,
        run_hours=round(run_ms / 3_600_000, 4),
    )


def _rented(
    connection: Connection, asked: w.AskStats, project: str | None, now_ms: int
) -> tuple[float, int, int]:
    """Return the hours and the rent of machines, and how many are there now.

    Machines belong to pools, not to projects: of a project only the cost of its jobs is known.
    """
    if project is not None:
        return 0.0, 0, 0
    which: list[Any] = []
    if asked.pool is not None:
        which.append(_P.name == asked.pool)
    if asked.account is not None:
        which.append(_P.account == asked.account)
    ended = select(func.sum(_P.machine_ms), func.sum(_P.spent_micro)).where(*which)
    lived_ms, spent = (int(each or 0) for each in connection.execute(ended).one())
    live = (
        select(_M.price_micro, _M.rented_ms)
        .join(pools, _P.name == _M.pool)
        .where(_M.ended_ms.is_(None), _M.rented_ms.is_not(None), *which)
    )
    running = 0
    for price, since in connection.execute(live):
        running += 1
        lived = max(0, now_ms - since)
        lived_ms += lived
        spent += rent_micro(price, lived)
    return lived_ms / 3_600_000, spent, running
