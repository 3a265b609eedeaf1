"""A machine that is taken away, from its worker to the plan: what waits on it runs on another."""

import asyncio
from pathlib import Path

import pytest

from roost.parts.access import Principal
from roost.wire import jobs as w
from roost.wire.workerlink import LogsTaken, WorkerLogs, WorkerOrders, WorkerPoll
from tests.integration.jobs.rig import Rig, run
from tests.integration.worker.standin import working

TWO = w.DemandBody(cpu=2, memory="1GiB")


class AtTheDoor:
    """The plane of a real worker: the door of a rig, which the test holds shut for a while."""

    def __init__(self, rig: Rig, machine: str) -> None:
        self._door = rig.process.door
        self._who = Principal(f"machine/{machine}", "worker", host=machine)
        self.open, self.polled, self.reasons = asyncio.Event(), asyncio.Event(), list[str]()
        self.open.set()

    async def poll(self, poll: WorkerPoll) -> WorkerOrders:
        """Pass a poll on; the rig's clock stands still, so none is held."""
        self.polled.set()
        await self.open.wait()
        poll.wait_s = 0
        answer: WorkerOrders = await self._door.poll(poll, self._who)
        answer.poll_s = 0.1
        self.reasons += [each.reason for each in poll.finished]
        return answer

    async def send_logs(self, logs: WorkerLogs) -> LogsTaken:
        """Pass pieces of logs on."""
        found: LogsTaken = await self._door.logs(logs, self._who)
        return found

    async def close(self) -> None:
        """Close nothing at all."""


def test_what_waits_on_a_machine_that_is_taken_away_runs_on_another(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, max_machines=2, types=["small"])
        await rig.settle()
        (token,) = rig.cloud.running
        rig.dead.add(token)  # its worker is a real one
        plane = AtTheDoor(rig, token)
        async with working(plane, tmp_path / "w"), asyncio.timeout(30):
            await plane.polled.wait()
            plane.open.clear()
            plane.polled.clear()
            await plane.polled.wait()  # nothing said from now on is heard
            (tmp_path / "w/notice").write_text("soon")
            while "will be taken away" not in caplog.text:  # the worker knows, and nobody else
                await asyncio.sleep(0.01)
            made = await rig.submit(demand=TWO)
            await rig.plan()
            assert (await rig.job(made.id)).machine == token
            plane.open.set()
            while not plane.reasons:
                plane.polled.clear()
                await plane.polled.wait()
        assert set(plane.reasons) == {"machine_reclaimed"}  # perhaps said twice
        await rig.pass_by(20)
        job = await rig.job(made.id)
        assert (job.state, job.attempt) == ("completed", 2)

    run(sqlite_url, test)
