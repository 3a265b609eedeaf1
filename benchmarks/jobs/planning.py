"""The rows `plan 100k` and `submit array 100k`: a pool with a long queue, and one long submission.

A plan is checked before its time counts: no machine has more than it holds, and every job is
assigned or left. The submission goes through the same code as over HTTP, into SQLite with fsync.
"""

import asyncio
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.results import Result, at_most
from roost.base.clock import RealClock
from roost.base.ids import IdSource
from roost.base.units import GIB
from roost.jobs.catalogue import Catalogue
from roost.jobs.deciding.ordering import Queued
from roost.jobs.deciding.planning import plan_pool
from roost.jobs.pools import Pools
from roost.jobs.submitting import Submitting
from roost.ledger.opening import open_store
from roost.model.job import MachineType, Pool
from roost.parts.access import Principal
from roost.parts.sealing import Seal
from roost.providers.mix.problem import MixLimits
from roost.testing.jobs import ModelCloud, ModelClouds
from roost.wire.jobs import CreatePool, SubmitJobs

GOAL_S = 5.0
WHO = Principal("bench", "operator")
TYPES = (
    MachineType("medium", 8000, 32 * GIB, 0, price_micro=400),
    MachineType("large", 32000, 128 * GIB, 0, price_micro=1500),
)


def _machine(number: int) -> dict[str, Any]:
    have = {"cpu_milli": 8000, "memory_bytes": 32 * GIB, "disk_bytes": 0, "attempts": 1024}
    return {
        "id": f"m{number:05}", "state": "ready", "market": "on_demand",
        **{f"{name}_capacity": amount for name, amount in have.items()},
        **{f"{name}_committed": 0 for name in have},
    }  # fmt: skip


def plan_row(queued: int = 100_000, machines: int = 10_000) -> Result:
    """Return the row `plan 100k`: fair between four projects, best fit."""
    arrays = [
        Queued(f"job-{n:05}", f"p{n % 4}", 500 * (1 + n % 4), GIB * (1 + n % 5), 0, 100)
        for n in range(queued // 100)
    ]
    pool = Pool("p", "local", max_machines=machines + 1000, ordering="fair", fit="best")
    rows = [_machine(n) for n in range(machines)]
    plan_pool(pool, rows[:10], arrays[:10], {}, TYPES, MixLimits())  # kernels are ready then
    began, cpu = time.perf_counter(), time.process_time()
    plan = plan_pool(pool, rows, arrays, {}, TYPES, MixLimits())
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    amounts = {each.array: each for each in arrays}
    used: Counter[str] = Counter()
    for (machine, array), number in plan.assigned.items():
        used[machine] += number * amounts[array].cpu_milli
    if max(used.values(), default=0) > 8000:
        raise AssertionError("a machine has more than it holds")
    if sum(plan.assigned.values()) + sum(plan.left.values()) != queued:
        raise AssertionError("jobs are neither assigned nor left")
    note = f"{sum(plan.assigned.values())} assigned on {machines} machines; {cpu:.2f} s of CPU"
    return at_most("plan 100k", round(took, 3), "s", GOAL_S, note=note)


async def _submit(folder: Path, count: int) -> tuple[float, float]:
    clock = RealClock()
    ids = IdSource(clock.wall_ms)
    store = await open_store(f"sqlite:///{folder / 'roost.db'}", clock, ids)
    try:
        seal = Seal()
        catalogue = Catalogue(store, clock, seal, ModelClouds(ModelCloud()))
        await Pools(store, catalogue, lambda: None).create(
            CreatePool(name="default", provider="model"), WHO
        )
        submitting = Submitting(store, clock, ids, catalogue, seal)
        began, cpu = time.perf_counter(), time.process_time()
        made = await submitting.submit(SubmitJobs(command=["true"], count=count), WHO, None)
        took = time.perf_counter() - began, time.process_time() - cpu
        if (made.size, made.jobs.queued) != (count, count):
            raise AssertionError("jobs are missing")
        return took
    finally:
        await store.close()


def submit_row(count: int = 100_000) -> Result:
    """Return the row `submit array 100k`, durable."""
    with TemporaryDirectory() as folder:
        took, cpu = asyncio.run(_submit(Path(folder), count))
    note = f"{count / took:.0f} jobs a second; {cpu:.2f} s of CPU"
    return at_most("submit array 100k", round(took, 3), "s", GOAL_S, note=note)
