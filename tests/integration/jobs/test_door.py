"""The door of workers, as a machine that means harm would use it."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from roost.base.errors import TooManyRequests, Unauthorized
from roost.jobs import desk
from roost.jobs.bell import LOOK_S
from roost.ledger.schema.jobtables import job_logs, machines
from roost.parts.access import Principal
from roost.testing.jobs import GIB, SMALL, ModelCloud, ModelWorker
from roost.wire import jobs as w
from roost.wire.workerlink import LogChunk, WorkerCapacity, WorkerLogs, WorkerOrders
from tests.integration.jobs.rig import MEMBER, OPERATOR, Rig, run

DEADLINE_S = 60


def test_a_join_token_opens_nothing_once_its_machine_has_spoken(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        await rig.submit()
        await rig.plan()
        await rig.rent()
        (worker,) = rig.workers.values()
        await worker.join()  # the answer to the first was lost: it asks again
        await worker.poll()
        with pytest.raises(Unauthorized):
            await worker.join()

    run(sqlite_url, test)


def test_a_worker_s_capacity_rises_again_to_what_is_rented(sqlite_url: str) -> None:
    """It starts again on a fuller disk, and again when that has been emptied."""

    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, types=["small"])
        await rig.settle()
        (worker,) = rig.workers.values()
        for disk, kept in ((7, 7), (3, 3), (5, 5), (99, 10)):
            poll = worker.message()
            poll.capacity = WorkerCapacity(
                cpu_milli=9000, memory_bytes=SMALL.memory_bytes, disk_bytes=disk * GIB
            )
            await rig.process.door.poll(poll, worker.who)
            (row,) = await rig.rows(select(machines))
            assert row["disk_bytes_capacity"] == kept * GIB
            assert row["cpu_milli_capacity"] == SMALL.cpu_milli

    run(sqlite_url, test, ModelCloud(types=[replace(SMALL, disk_bytes=10 * GIB)]))


def test_one_poll_of_a_machine_is_held_at_a_time(sqlite_url: str) -> None:
    """A worker that asks again and again, and waits for no answer, holds the last one alone."""

    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=2, types=["small"])
        await rig.settle()
        first, second = rig.workers.values()

        def held_poll(worker: ModelWorker) -> asyncio.Task[WorkerOrders]:
            poll = worker.message()
            poll.wait_s = 30.0
            return asyncio.create_task(rig.process.door.poll(poll, worker.who))

        other = held_poll(second)
        polls = [held_poll(first) for _ in range(50)]
        async with asyncio.timeout(DEADLINE_S):  # time stands still: none ends by itself
            done: set[asyncio.Task[WorkerOrders]] = set()
            while len(done) < len(polls) - 1:
                found, _ = await asyncio.wait(
                    set(polls) - done, return_when=asyncio.FIRST_COMPLETED
                )
                done |= found
        assert all(each.result() == WorkerOrders() for each in done)
        (last,) = set(polls) - done
        await rig.submit(count=2)
        while not (last.done() and other.done()):
            await rig.plan()
            await rig.clock.pass_by(LOOK_S)
        told = [each.attempt for poll in (last, other) for each in poll.result().assignments]
        assert len(told) == 2

    run(sqlite_url, test)


def test_requests_of_one_caller_that_wait_for_jobs_are_bounded(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "MOST_WAITING", 3)

    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit()

        def wait(who: Principal = OPERATOR) -> asyncio.Task[w.ArrayDetail]:
            asked = w.AwaitArray(wait_s=30.0)
            return asyncio.create_task(rig.process.desk.get_array(made.id, asked, who))

        gone, *waiting = [wait() for _ in range(3)]
        with pytest.raises(TooManyRequests):
            async with asyncio.timeout(DEADLINE_S):  # time stands still: it would wait for ever
                await wait()
        assert (await rig.process.desk.get_array(made.id, w.AwaitArray(), OPERATOR)).id == made.id
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        waiting += [wait(), wait(MEMBER)]  # in place of the one that has gone; another caller's
        await rig.settle()
        async with asyncio.timeout(DEADLINE_S):
            while not all(each.done() for each in waiting):
                await rig.clock.pass_by(LOOK_S)
        assert [each.result().id for each in waiting] == [made.id] * 4

    run(sqlite_url, test)


def test_logs_are_kept_of_a_machine_s_own_attempts_alone(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit(count=2)
        await rig.settle(finish=False)
        (worker,) = rig.workers.values()
        told = (
            f"{made.id}.0:1",
            f"{made.id}.0:2",
            f"{made.id}.7:1",
            "job-x.0:1",
            "x",
            ":1",
            ".0:1",
        )
        chunks = [
            LogChunk(attempt=attempt, stream="stdout", offset=0, data=b"hello") for attempt in told
        ]

        taken = await rig.process.door.logs(WorkerLogs(chunks=chunks), worker.who)

        (count,) = await rig.rows(select(func.count().label("n")).select_from(job_logs))
        assert count["n"] == 1
        assert [each.enough for each in taken.logs] == [False] + [True] * 6
        log = await rig.process.desk.logs(f"{made.id}.0", w.ReadLogs(), OPERATOR)
        assert log.data == b"hello"

    run(sqlite_url, test)
