"""Mistakes that a scheduler of jobs on rented machines has made before, each shown not to be here.

The numbers are those of the list in the description of the Virtual machine scheduler's behaviour;
those that lie with providers and workers are tested beside them.
"""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from roost.base.errors import InvalidRequest, Unauthorized
from roost.jobs.deciding.ordering import Queued
from roost.jobs.deciding.planning import plan_pool
from roost.jobs.detecting import Patience
from roost.ledger.schema.jobtables import account_secrets, jobs, machine_secrets, machines
from roost.model.job import Pool
from roost.parts.access import Principal
from roost.parts.sealing import KeyFile, Seal, new_key
from roost.parts.singleton import NotHolder, Singleton
from roost.providers.mix.problem import MixLimits
from roost.testing.jobs import LARGE
from roost.wire import jobs as w
from roost.wire.workerlink import AttemptReport, WorkerJoin, WorkerPoll
from tests.integration.jobs.rig import OPERATOR, Process, Rig, run

GIB = 2**30
SILENT_S = Patience().silent_s


def test_1_a_job_that_ends_while_a_plan_is_made_frees_its_room(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"])
        first = await rig.submit(demand=w.DemandBody(cpu=1, memory="1GiB"))
        await rig.settle(finish=False)
        later = await rig.submit(demand=w.DemandBody(cpu=1, memory="1GiB"))
        (worker,) = rig.workers.values()
        reading = rig.store.read

        async def read_then_end(question):  # type: ignore[no-untyped-def]
            seen = await reading(question)
            rig.store.read = reading
            worker.finish()
            await worker.poll()
            return seen

        rig.store.read = read_then_end  # the planner decides by what was so before
        rig.process.planner._store = rig.store
        await rig.process.planner.plan_all()

        await rig.check()
        assert (await rig.array(first.id)).state == "completed"
        assert (await rig.job(later.id)).state == "scheduled"
        (row,) = await rig.rows(select(machines))
        assert row["cpu_milli_committed"] == 1000, "what the first job had was taken for promised"
        await rig.settle()

    run(database_url, test)


def test_2_a_planner_whose_lease_was_taken_over_commits_nothing(database_url: str) -> None:
    run(database_url, _a_late_planner_commits_nothing)


def test_2_a_commit_that_does_not_compare_its_token_is_found(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plant the mistake of the document: without the check in the commit the case above fails."""
    monkeypatch.setattr(Singleton, "check", lambda self, tx: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        run(database_url, _a_late_planner_commits_nothing)


async def _a_late_planner_commits_nothing(rig: Rig) -> None:
    await rig.pool()
    await rig.settle()
    await rig.submit()
    late = rig.process.planner
    other = Process(rig.store, rig.clock, rig.clouds, "two")
    await other.leases.tick()
    rig.clock.move(20.0)
    await other.leases.tick()
    assert other.planner.singleton.token is not None

    with pytest.raises(NotHolder):
        await late.plan_all()

    assert await rig.rows(select(machines)) == []


@pytest.mark.parametrize("fit", ["first", "next", "best", "worst"])
def test_3_4_5_every_fit_finds_a_machine_that_has_room(fit: str) -> None:
    def machine(number: int, cpu: int, memory: int) -> dict[str, object]:
        free = {"cpu_milli": cpu * 1000, "memory_bytes": memory * GIB, "disk_bytes": 0}
        return {
            "id": f"m{number}",
            "state": "ready",
            "market": "on_demand",
            **{f"{name}_capacity": amount for name, amount in free.items()},
            **{f"{name}_committed": 0 for name in free},
            "attempts_capacity": 100,
            "attempts_committed": 0,
        }

    # Most cores where there is no memory, and the other way round: only one has both.
    rows = [machine(1, 16, 1), machine(2, 1, 64), machine(3, 4, 8), machine(4, 8, 2)]
    pool = Pool("p", "model", max_machines=4, fit=fit)  # type: ignore[arg-type]
    asked = [Queued("job-1", "p", 3000, 6 * GIB, 0, 1)]

    plan = plan_pool(pool, rows, asked, {}, [LARGE], MixLimits())

    assert dict(plan.assigned) == {("m3", "job-1"): 1}
    assert not plan.wanted


def test_6_7_a_type_is_chosen_by_every_amount_and_what_is_too_large_is_refused(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        await rig.submit(demand=w.DemandBody(cpu=1, memory="10GiB"))
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        assert rig.cloud.rented[token][0].type.name == "large"  # a small one has the core alone

        with pytest.raises(InvalidRequest, match="the nearest, 'large'"):
            await rig.submit(demand=w.DemandBody(cpu=9, memory="1GiB"))
        await rig.settle()

    run(database_url, test)


def test_8_a_silent_worker_gives_up_what_it_ran_what_it_had_and_what_it_was_to_end(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"])
        made = await rig.submit(count=2, demand=w.DemandBody(cpu=1, memory="1GiB"))
        await rig.settle(finish=False)
        await rig.desk.cancel(f"{made.id}.1", OPERATOR)
        late = await rig.submit(demand=w.DemandBody(cpu=1, memory="1GiB"))
        (token,) = rig.cloud.running
        rig.dead.add(token)

        await rig.pass_by(SILENT_S + 30, finish=False)
        await rig.settle()

        assert (await rig.job(f"{made.id}.0")).state == "completed"
        assert (await rig.job(f"{made.id}.1")).state == "cancelled"
        assert (await rig.job(late.id)).state == "completed"
        assert token not in rig.cloud.running

    run(database_url, test)


def test_9_what_is_cancelling_becomes_cancelled(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit()
        await rig.settle(finish=False)
        told = await rig.desk.cancel(made.id, OPERATOR)
        assert (told.cancelled, told.cancelling) == (0, 1)
        assert (await rig.job(made.id)).state == "cancelling"

        await rig.settle(finish=False)

        job = await rig.job(made.id)
        assert (job.state, job.reason) == ("cancelled", "cancelled")

    run(database_url, test)


def test_10_a_report_that_comes_again_frees_and_changes_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"])
        made = await rig.submit(count=2, demand=w.DemandBody(cpu=1, memory="1GiB"))
        await rig.settle(finish=False)
        (worker,) = rig.workers.values()
        worker.finish(most=1)
        await worker.poll(lose_answer=True)
        once = await rig.array(made.id)
        assert once.jobs.completed == 1

        for _ in range(3):
            await worker.poll(lose_answer=True)

        await rig.check()  # sums are those of the rows: nothing was freed twice
        assert (await rig.array(made.id)).jobs == once.jobs
        (row,) = await rig.rows(select(machines))
        assert row["cpu_milli_committed"] == 1000

    run(database_url, test)


def test_11_a_zombie_cannot_complete_a_job_that_was_taken_from_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=2, types=["small"])
        made = await rig.submit()
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        zombie = rig.workers[token]
        rig.dead.add(token)
        await rig.pass_by(SILENT_S + 30, finish=False)

        zombie.finish()
        answer = await zombie.poll()

        assert answer is not None
        assert answer.leave
        assert (await rig.job(made.id)).state != "completed"
        await rig.settle()
        assert (await rig.job(made.id)).attempt == 2

    run(database_url, test)


def test_12_the_sweep_spares_what_is_being_made_and_returns_what_nobody_knows(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(warm=0)
        made = await rig.submit()
        await rig.plan()
        (row,) = await rig.rows(select(machines))
        assert row["cloud_id"] is None  # wanted, and not asked for yet
        await rig.process.detecting.look()
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        launch, cloud = rig.cloud.rented[token]
        rig.cloud.rented["stray"] = (
            replace(launch, token="stray"),
            replace(cloud, cloud_id="i-stray", machine="stray"),
        )
        rig.cloud.untracked.add("stray")
        await rig.pass_by(60, finish=False)
        assert "stray" in rig.cloud.running, "it may be somebody's who is just being made"

        await rig.pass_by(Patience().untracked_s + 120, finish=False, step=20)

        assert rig.cloud.running == [token]
        assert (await rig.job(made.id)).state == "running"

    run(database_url, test)


def test_13_a_machine_on_its_way_is_never_taken_for_idle(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(idle_grace_s=0)
        await rig.submit()
        await rig.plan()

        for _ in range(5):
            rig.clock.move(10)
            await rig.process.leases.tick()
            await rig.plan()

        (row,) = await rig.rows(select(machines))
        assert row["state"] == "pending"
        await rig.settle()

    run(database_url, test)


def test_14_a_job_that_is_cancelled_meanwhile_is_dropped_from_the_plan_alone(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, types=["large"], max_machines=1)
        await rig.settle()
        made = await rig.submit(count=3, demand=w.DemandBody(cpu=1, memory="1GiB"))
        reading = rig.store.read

        async def read_then_cancel(question):  # type: ignore[no-untyped-def]
            seen = await reading(question)
            rig.store.read = reading
            await rig.desk.cancel(f"{made.id}.1", OPERATOR)
            return seen

        rig.store.read = read_then_cancel
        await rig.process.planner.plan_all()

        rows = await rig.rows(select(jobs).where(jobs.c.array == made.id).order_by(jobs.c.idx))
        assert [row["state"] for row in rows] == ["scheduled", "cancelled", "scheduled"]
        await rig.check()

    run(database_url, test)


def test_15_order_is_by_submission_and_projects_share(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool("default", max_machines=1, types=["small"], ordering="fair")
        one = w.DemandBody(cpu=1, memory="1GiB")
        greedy = await rig.submit(count=20, demand=one, pool="default")
        modest = await rig.submit(count=1, demand=one, pool="default", project="other")

        await rig.settle(finish=False)

        assert (await rig.array(greedy.id)).jobs.live == 1
        assert (await rig.array(modest.id)).jobs.live == 1
        await rig.settle()

    run(database_url, test)


def test_17_a_machine_is_told_no_credentials_and_speaks_for_itself_alone(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        secret = "AKIA-very-secret"
        body = w.CreateAccount(
            name="cloud", provider="model", credentials={"key": secret}, max_machines=2
        )
        told = await rig.accounts.create(body, OPERATOR)
        assert secret not in msgspec.json.encode(told).decode()
        await rig.pool(account="cloud")
        made = await rig.submit(count=2, demand=w.DemandBody(cpu=2, memory="1GiB"))
        await rig.settle(finish=False)
        launches = [rig.cloud.rented[token][0] for token in rig.cloud.running]
        assert secret not in repr(launches)
        assert rig.clouds.opened[-1][1] == {"key": secret}

        first, *others = rig.workers.values()
        stranger = Principal("machine/x", "worker", host="machine-x")
        running = next(iter(first.attempts))
        report = AttemptReport(attempt=running, outcome="completed", exit_code=0)
        poll = WorkerPoll(instance="x", sequence=1, finished=[report])
        answer = await rig.door.poll(poll, stranger)
        assert answer.leave
        assert (await rig.array(made.id)).jobs.completed == 0
        with pytest.raises(Unauthorized):
            await rig.door.join(WorkerJoin(machine="machine-x"), first.launch.bootstrap.join_token)
        assert others or len(rig.workers) == 1

    run(database_url, test)


def test_credentials_and_join_tokens_are_sealed_and_sealed_anew(
    database_url: str, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "key")
    file.put_first([new_key()])
    seal = Seal(file, file.load()[0].fingerprint)

    async def test(rig: Rig) -> None:
        body = w.CreateAccount(name="cloud", provider="model", credentials={"key": "hidden-one"})
        await rig.accounts.create(body, OPERATOR)
        await rig.pool(account="cloud")
        await rig.submit()
        await rig.settle(finish=False)
        kept = await rig.rows(select(account_secrets))
        kept += await rig.rows(select(machine_secrets))
        assert len(kept) == 2
        assert all(row["secret"].startswith("sealed:1:") for row in kept)
        assert rig.clouds.opened[-1][1] == {"key": "hidden-one"}

    run(database_url, test, seal=seal)
