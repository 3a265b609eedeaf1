"""The door of workers, as a machine that means harm would use it."""

import pytest
from sqlalchemy import func, select

from roost.base.errors import Unauthorized
from roost.ledger.jobtables import job_logs
from roost.wire import jobs as w
from roost.wire.workerlink import LogChunk, WorkerLogs
from tests.integration.jobs.rig import OPERATOR, Rig, run


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
