"""Writers that meet: reports and cancels lock in one order, and limits hold for all."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from sqlalchemy import Connection, select, text

from roost.base.errors import Conflict
from roost.base.ids import IdSource
from roost.jobs.books import Sums, cancel_jobs, end_attempts, on_machine
from roost.jobs.rented import Wanted, want_machine
from roost.ledger.opening import open_store
from roost.ledger.schema.jobtables import accounts, machines
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.model.job import attempt_id
from roost.testing.jobs import SMALL
from roost.wire import jobs as w
from roost.wire.workerlink import AttemptReport
from tests.integration.jobs.rig import OPERATOR, Rig, run

_DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


def test_a_report_and_a_cancel_of_the_same_jobs_never_wait_for_each_other(
    postgres_url: str,
) -> None:
    """Both are written again and again, beside each other; the database counts deadlocks."""

    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["large"])
        made = [await rig.submit(count=40, demand=w.DemandBody(cpu="100m", memory="16MiB"))
                for _ in range(12)]  # fmt: skip
        await rig.settle(finish=False)
        (worker,) = rig.workers.values()
        row = (await rig.rows(select(machines)))[0]
        before = await rig.store.read(_count)

        def report(tx: Tx, number: int) -> None:
            tx.find(machines, lock=True, id=worker.machine)
            sums = Sums()
            mine = [r for r in on_machine(tx, worker.machine) if r["array"] == made[number].id]
            tx.connection.execute(text("SELECT pg_sleep(0.01)"))
            done = [(r, _report(r)) for r in mine]
            end_attempts(tx, row, done, sums)
            sums.write(tx, worker.machine)

        def cancel(tx: Tx, number: int) -> None:
            cancel_jobs(tx, made[number].id, None)
            tx.connection.execute(text("SELECT pg_sleep(0.01)"))

        for number in range(len(made)):
            async with asyncio.timeout(30):
                await asyncio.gather(
                    rig.store.write(lambda tx, n=number: report(tx, n)),  # type: ignore[misc]
                    rig.store.write(lambda tx, n=number: cancel(tx, n)),  # type: ignore[misc]
                )
        assert await rig.store.read(_count) == before
        await rig.check()

    run(postgres_url, test)


def _count(connection: Connection) -> int:
    connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return int(connection.execute(_DEADLOCKS).scalar_one())


def _report(row: dict[str, object]) -> AttemptReport:
    name = attempt_id(f"{row['array']}.{row['idx']}", int(str(row["attempt"])))
    return AttemptReport(attempt=name, outcome="completed", exit_code=0)


def test_an_array_that_is_freed_and_cancelled_at_once_is_one_or_the_other(
    postgres_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["large"])
        for _ in range(8):
            first = await rig.submit()
            later = await rig.submit(count=20, needs=[first.id])
            await rig.settle(finish=False)
            (worker,) = rig.workers.values()
            worker.finish()
            await asyncio.gather(worker.poll(), rig.desk.cancel(later.id, OPERATOR))
            await rig.check()
            assert (await rig.array(later.id)).state == "cancelled"

    run(postgres_url, test)


@pytest.mark.parametrize("limit", ["machines", "cpu", "money"])
def test_two_writers_never_pass_an_account_s_limit_together(database_url: str, limit: str) -> None:
    """Sixteen pools want a machine each at the same moment; the account pays for five.

    On PostgreSQL two processes write; SQLite has one process, and refuses another.
    """
    most = {
        "machines": {"max_machines": 5},
        "cpu": {"max_cpu": 10},
        "money": {"budget_micro": 5 * SMALL.price_micro + 1},
    }[limit]

    async def test(rig: Rig) -> None:
        body = w.CreateAccount(name="ours", provider="model", **most)  # type: ignore[arg-type]
        await rig.accounts.create(body, OPERATOR)
        for number in range(16):
            await rig.pool(f"p{number:02}", account="ours")
        async with _another(database_url, rig) as other:
            refused = await asyncio.gather(
                *(_want((rig.store, other)[n % 2], f"p{n:02}", n) for n in range(16))
            )
        assert Counter(refused) == {None: 5, "account": 11}
        (row,) = await rig.rows(select(accounts))
        assert (row["machines_used"], row["cpu_milli_used"]) == (5, 10_000)
        assert row["micro_used"] == 5 * SMALL.price_micro
        await rig.check()

    run(database_url, test)


async def _want(store: Store, pool: str, number: int) -> str | None:
    wanted = Wanted(pool, "ours", SMALL, "on_demand")
    return await store.write(lambda tx: want_machine(tx, f"machine-{number:02}", wanted))


@asynccontextmanager
async def _another(url: str, rig: Rig) -> AsyncIterator[Store]:
    """Open the database once more, where it has several processes."""
    ids = IdSource(rig.clock.wall_ms, Random(7))
    if url.startswith("sqlite"):
        with pytest.raises(Conflict, match="another roost process"):
            await open_store(url, rig.clock, ids)
        yield rig.store
        return
    other = await open_store(url, rig.clock, ids)
    try:
        yield other
    finally:
        await other.close()
