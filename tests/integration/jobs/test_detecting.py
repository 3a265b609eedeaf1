"""The failure detector on machines: what gets stuck is moved on, and its jobs with it."""

import pytest
from sqlalchemy import select

from roost.base.steady import CONFIRM_S
from roost.jobs.detecting import Patience
from roost.jobs.ends import RESTART
from roost.ledger.schema.jobtables import job_attempts, machines
from roost.ledger.writes.transaction import Tx
from roost.model.job import CloudMachine
from roost.providers.errors import Unreachable
from roost.testing.jobs import ModelCloud
from roost.wire import jobs as w
from tests.integration.jobs.rig import Rig, run

TWO = w.DemandBody(cpu=2, memory="1GiB")
WAIT = Patience()


async def only_machine(rig: Rig) -> dict[str, object]:
    (row,) = await rig.rows(select(machines).where(machines.c.ended_ms.is_(None)))
    return row


def test_a_machine_whose_asker_is_gone_is_asked_for_again_by_the_same_token(
    database_url: str,
) -> None:
    """Stuck allocating: the process that claimed it died before it asked, or before it noted."""

    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1)
        made = await rig.submit(demand=TWO)
        await rig.plan()
        await rig.store.write(rig.renting._claim, "one that dies now")
        assert (await only_machine(rig))["state"] == "allocating"

        await rig.pass_by(WAIT.allocating_s - 30)
        assert (await only_machine(rig))["state"] == "allocating", "it may still be answered"
        await rig.pass_by(60)

        assert (await rig.job(made.id)).state == "completed"
        assert len(rig.cloud.rented) == 1

    run(database_url, test)


def test_a_wall_clock_that_jumps_ends_no_job_until_it_is_steady(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1)
        runs = await rig.submit(demand=TWO, run_limit_s=1800)
        await rig.settle(finish=False)
        waits = await rig.submit(demand=TWO, queue_limit_s=1800)
        await rig.settle(finish=False)

        async def states() -> list[str]:
            return [(await rig.job(each.id)).state for each in (runs, waits)]

        for ahead_s in (30 * 86_400, 0.0, -86_400, 0.0, 7200):  # the last one as after a sleep
            rig.clock.ahead_s = ahead_s
            await rig.pass_by(60, finish=False, step=20)
            assert await states() == ["running", "queued"], ahead_s
        await rig.pass_by(CONFIRM_S - 120, finish=False, step=20)
        assert await states() == ["running", "queued"]
        await rig.pass_by(180, finish=False, step=20)
        assert await states() == ["failed", "failed"]

    run(database_url, test)


def test_a_machine_whose_worker_never_speaks_is_given_back_for_another(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1)
        made = await rig.submit(demand=TWO)
        await rig.plan()
        (token,) = [row["id"] for row in await rig.rows(select(machines))]
        rig.dead.add(token)
        await rig.pass_by(WAIT.worker_s - 60, step=20)
        assert rig.cloud.running == [token]

        # Given back after a minute, and another is asked for after one more.
        await rig.pass_by(240, step=20)

        assert token not in rig.cloud.running
        (gone,) = await rig.rows(select(machines).where(machines.c.id == token))
        assert (gone["state"], gone["reason"]) == ("returned", "its worker never spoke")
        assert (await rig.job(made.id)).state == "completed"

    run(database_url, test)


def test_a_machine_whose_returner_is_gone_is_returned_by_another(database_url: str) -> None:
    """Stuck terminating: claimed by a process that died, while its worker speaks on unasked."""

    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1, idle_grace_s=3600)
        await rig.submit(demand=TWO)
        await rig.settle()
        (token,) = rig.cloud.running

        def begin(tx: Tx) -> None:
            claimed = {"state": "returning", "state_ms": tx.at_ms, "claimed_by": "one that died"}
            tx.change(machines, {"id": token}, **claimed)

        await rig.store.write(begin, "test")
        await rig.pass_by(WAIT.returning_s - 30)
        assert rig.cloud.running == [token]

        await rig.pass_by(60)

        assert rig.cloud.running == []

    run(database_url, test)


def test_a_provider_that_cannot_end_a_machine_is_asked_until_it_has(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], idle_grace_s=1)
        await rig.submit(demand=TWO)
        await rig.settle()
        rig.cloud.terminate_faults += [Unreachable("model", "no answer")] * 4

        await rig.pass_by(20)
        assert len(rig.cloud.running) == 1
        assert (await only_machine(rig))["state"] == "returning", "it counts as long as it is paid"
        await rig.pass_by(60)

        assert rig.cloud.running == []

    run(sqlite_url, test)


class Liar(ModelCloud):
    """A provider that says that a machine has ended, once, and goes on renting it."""

    lies = 1

    async def terminate(self, cloud_id: str) -> None:
        """End a machine, or only say so."""
        if self.lies:
            self.lies -= 1
            self.untracked |= {t for t, (_, m) in self.rented.items() if m.cloud_id == cloud_id}
            return
        await super().terminate(cloud_id)


def test_a_machine_that_was_said_to_have_ended_and_has_not_is_found_and_ended(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], idle_grace_s=1)
        await rig.submit(demand=TWO)
        await rig.settle()
        await rig.pass_by(20)
        assert await rig.rows(select(machines).where(machines.c.ended_ms.is_(None))) == []
        assert len(rig.cloud.running) == 1, "nobody pays attention, and it costs money"

        await rig.pass_by(WAIT.untracked_s + 2 * WAIT.sweep_s, step=20)

        assert rig.cloud.running == []

    run(sqlite_url, test, cloud=Liar())


class Forgetful(ModelCloud):
    """A provider that answers a launch with a machine that it then knows nothing of."""

    forgets = 1

    async def launch(self, launch: object) -> CloudMachine:
        """Return a machine, and forget the first of them."""
        made = await super().launch(launch)  # type: ignore[arg-type]
        if self.forgets:
            self.forgets -= 1
            self.gone.add(made.cloud_id)
        return made


def test_a_machine_that_its_provider_made_up_is_given_up_for_another(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1)
        made = await rig.submit(demand=TWO)

        await rig.pass_by(WAIT.gone_s + 3 * WAIT.sweep_s, step=10)

        assert (await rig.job(made.id)).state == "completed"
        states = [row["state"] for row in await rig.rows(select(machines))]
        assert states.count("returned") >= 1
        assert len(rig.cloud.rented) == 2

    run(sqlite_url, test, cloud=Forgetful())


def test_a_job_whose_machines_die_waits_longer_each_time_and_is_lost_in_the_end(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1)
        made = await rig.submit(demand=TWO, restarts=2)
        rig.ending = lambda a: {
            "outcome": "failed", "reason": "worker_failed", "message": "no fork"
        }  # fmt: skip

        await rig.pass_by(120, step=0.5)

        job = await rig.job(made.id)
        assert (job.state, job.attempt) == ("lost", 3)
        tried = await rig.rows(select(job_attempts).order_by(job_attempts.c.attempt))
        later = [row["scheduled_ms"] for row in tried[1:]] + [None]
        for number, (row, next_ms) in enumerate(zip(tried, later, strict=True)):
            if next_ms is not None:
                assert next_ms - row["ended_ms"] >= 1000 * RESTART.wait_s(number)

    run(sqlite_url, test)


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_what_a_job_does_wrong_itself_is_no_fault_of_its_machine(
    sqlite_url: str, state: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"])
        made = await rig.submit(demand=TWO, retries=1)
        left = iter([1, 0 if state == "completed" else 1])
        rig.ending = lambda a: (
            {"outcome": "failed", "reason": "exit_code", "exit_code": 1}
            if next(left, 0)
            else {"outcome": "completed", "exit_code": 0}
        )
        await rig.pass_by(30, step=1)
        job = await rig.job(made.id)
        assert (job.state, job.attempt) == (state, 2)

    run(sqlite_url, test)
