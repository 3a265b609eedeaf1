"""What users are promised: order between arrays, kinds, limits, budgets, warm machines, answers."""

from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.jobs.books import cancel_jobs
from roost.ledger.schema.jobtables import jobs, machines, pools
from roost.ledger.writes.transaction import Tx
from roost.providers.errors import NoCapacity
from roost.testing.jobs import SMALL
from roost.wire import jobs as w
from roost.wire.bodies import DemandBody
from tests.integration.jobs.rig import MEMBER, OPERATOR, Process, Rig, run

ONE, TWO = DemandBody(cpu=1, memory="1GiB"), DemandBody(cpu=2, memory="1GiB")


def fails(_: object) -> dict[str, object]:
    return {"outcome": "failed", "reason": "exit_code", "exit_code": 1}


def test_an_array_begins_when_all_that_it_needs_has_ended(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        first, second = await rig.submit(), await rig.submit(count=2)
        later = await rig.submit(needs=[first.id, second.id])
        assert (await rig.job(later.id)).state == "waiting"
        assert (await rig.desk.explain(later.id, OPERATOR)).cause == "needs"
        await rig.settle(finish=False)
        assert (await rig.job(later.id)).state == "waiting"
        await rig.settle()
        assert (await rig.job(later.id)).state == "completed"

    run(database_url, test)


def test_one_job_of_an_array_cannot_be_waited_for(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        alone, many = await rig.submit(), await rig.submit(count=2)
        with pytest.raises(InvalidRequest, match=rf"{many.id} has 2 jobs") as refused:
            await rig.submit(needs=[f"{many.id}.1"])
        assert refused.value.hint == f"Maybe name {many.id}: it begins when all of it has ended."
        with pytest.raises(NotFound):
            await rig.submit(needs=[f"{alone.id}.1"])
        later = await rig.submit(needs=[f"{alone.id}.0", many.id])
        assert sorted(later.needs) == sorted([alone.id, many.id])

    run(sqlite_url, test)


@pytest.mark.parametrize(("on_failure", "state"), [("fail", "failed"), ("run", "completed")])
def test_what_did_not_complete_stops_those_who_need_it_unless_they_run_all_the_same(
    database_url: str, on_failure: str, state: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        rig.ending = fails  # type: ignore[assignment]
        first = await rig.submit()
        await rig.settle()
        rig.ending = lambda a: {"outcome": "completed", "exit_code": 0}
        middle = await rig.submit(needs=[first.id], on_failure=on_failure)
        last = await rig.submit(needs=[middle.id])
        await rig.settle()
        assert (await rig.job(middle.id)).state == state
        assert (await rig.job(last.id)).state == state

    run(database_url, test)


def test_a_kind_gives_a_job_what_it_does_not_say_and_checks_its_parameters(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        schema = {
            "type": "object",
            "properties": {"epochs": {"type": "integer", "minimum": 1}},
            "required": ["epochs"],
        }
        kind = w.CreateJobKind(
            name="train", command=["train", "{parameters.epochs}"], demand=TWO, retries=2,
            parameters_schema=schema,
        )  # fmt: skip
        await rig.kinds.create(kind, OPERATOR)
        with pytest.raises(Conflict):
            await rig.kinds.create(kind, OPERATOR)
        submit = rig.process.desk.submit
        for wrong in ({}, {"epochs": 0}, {"epochs": "three"}):
            with pytest.raises(InvalidRequest):
                await submit(w.SubmitJobs(kind="train", parameters=wrong), OPERATOR, None)
        with pytest.raises(NotFound):
            await submit(w.SubmitJobs(kind="nothing"), OPERATOR, None)
        body = w.SubmitJobs(kind="train", parameters={"epochs": 3})
        made = await submit(body, MEMBER, None)
        await rig.settle(finish=False)
        (worker,) = rig.workers.values()
        ((told, _),) = worker.attempts.values()
        assert (told.command, told.cpu_milli) == (["train", "3"], 2000)
        assert (await rig.array(made.id)).kind == "train"

    run(sqlite_url, test)


def test_a_job_says_why_it_waits(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"])
        rig.cloud.faults.append((NoCapacity("model", "none is left"), False))
        first = await rig.submit(demand=TWO)
        await rig.plan()
        assert (await rig.desk.explain(first.id, OPERATOR)).cause == "starting"
        await rig.process.renting.work()
        said = await rig.desk.explain(first.id, OPERATOR)
        assert any("none is left" in each for each in said.sentences)
        await rig.pass_by(10, finish=False)
        await rig.settle(finish=False)
        assert "runs on" in (await rig.desk.explain(first.id, OPERATOR)).sentences[0]
        second = await rig.submit(demand=TWO)
        rig.clock.move(1)
        third = await rig.submit(demand=TWO)
        await rig.settle(finish=False)
        said = await rig.desk.explain(third.id, OPERATOR)
        assert (said.cause, said.before) == ("pool_limit", 1)
        assert any("1 jobs are looked at before it" in each for each in said.sentences)
        await rig.settle()
        said = await rig.desk.explain(second.id, OPERATOR)
        assert said.sentences == ["it has ended: completed"]

    run(sqlite_url, test)


def test_stats_are_of_all_a_project_a_pool_or_an_account(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        body = w.CreateAccount(name="ours", provider="model")
        await rig.accounts.create(body, OPERATOR)
        await rig.pool("a", account="ours", types=["small"])
        await rig.pool("b", types=["small"])
        rig.ending = lambda a: {"outcome": "completed", "exit_code": 0, "run_ms": 3_600_000}
        await rig.submit(pool="a", demand=TWO)
        await rig.submit(pool="b", project="other", demand=TWO, count=2)
        await rig.settle()
        rig.clock.move(10)

        async def ask(**given: str) -> w.StatsBody:
            return await rig.desk.stats(w.AskStats(**given), OPERATOR)

        every, a, other, ours = (
            await ask(), await ask(pool="a"), await ask(project="other"), await ask(account="ours"),
        )  # fmt: skip
        assert (every.arrays, every.jobs.completed) == (2, 3)
        assert (a.jobs.completed, a.cost_micro) == (1, SMALL.price_micro)
        assert (ours.jobs.completed, ours.running_machines) == (1, 1)
        assert (other.jobs.completed, other.run_hours) == (2, 2.0)
        assert every.machine_hours > a.machine_hours > 0
        assert (await rig.desk.stats(w.AskStats(), MEMBER)).jobs.completed == 1

    run(database_url, test)


def test_the_queue_limit_is_not_the_run_limit(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"])
        busy = await rig.submit(demand=TWO, run_limit_s=3600)
        rig.clock.move(1)
        hasty = await rig.submit(demand=TWO, queue_limit_s=30)
        rig.clock.move(1)
        patient = await rig.submit(demand=TWO, run_limit_s=30)
        await rig.settle(finish=False)
        await rig.pass_by(60, finish=False)
        job = await rig.job(hasty.id)
        assert (job.state, job.reason) == ("failed", "queue_limit")
        assert (await rig.job(patient.id)).state == "queued"
        assert (await rig.job(busy.id)).state == "running"
        await rig.settle()
        assert (await rig.job(patient.id)).state == "completed"

    run(database_url, test)


def test_a_job_that_runs_too_long_is_told_to_end_and_has_failed(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit(run_limit_s=30)
        await rig.settle(finish=False)
        await rig.pass_by(120, finish=False)
        job = await rig.job(made.id)
        assert (job.state, job.reason) == ("failed", "run_limit")

    run(sqlite_url, test)


def test_a_job_that_was_told_to_end_on_a_machine_that_is_gone_is_tried_again(
    sqlite_url: str,
) -> None:
    """Only its worker could say whether it ran too long; nobody may blame the job."""

    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit(run_limit_s=10)
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        rig.dead.add(token)
        rig.clock.move(80)
        await rig.process.leases.tick()
        await rig.process.detecting._end_old()
        assert (await rig.job(made.id)).state == "cancelling"
        await rig.pass_by(100)
        await rig.settle()
        job = await rig.job(made.id)
        assert (job.state, job.attempt) == ("completed", 2)

    run(sqlite_url, test)


def test_a_job_that_was_told_to_end_and_then_cancelled_is_never_tried_again(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit(run_limit_s=10)
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        rig.dead.add(token)
        rig.clock.move(80)
        await rig.process.leases.tick()
        await rig.process.detecting._end_old()
        assert (await rig.job(made.id)).reason == "run_limit"
        answer = await rig.desk.cancel(made.id, OPERATOR)
        assert (answer.cancelled, answer.cancelling) == (0, 1)
        again = await rig.desk.cancel(made.id, OPERATOR)
        assert (again.cancelled, again.cancelling) == (0, 0)
        await rig.pass_by(100)
        await rig.settle()
        job = await rig.job(made.id)
        assert (job.state, job.attempt) == ("cancelled", 1)

    run(database_url, test)


def test_a_job_cancelled_before_its_worker_heard_of_it_ends(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, types=["small"])
        await rig.settle()
        made = await rig.submit()
        await rig.plan()
        assert (await rig.job(made.id)).state == "scheduled"
        await rig.desk.cancel(made.id, OPERATOR)
        await rig.pass_by(30)
        assert (await rig.job(made.id)).state == "cancelled"

    run(database_url, test)


def test_a_cancel_counts_the_jobs_of_an_array_and_loads_none(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=2, types=["small"])
        made = await rig.submit(count=50, demand=TWO)
        await rig.settle(finish=False)

        def cancel(tx: Tx) -> tuple[tuple[int, int, list[str]], int]:
            loaded: list[int] = []
            rows = tx.rows

            def counted(*args: Any, **given: Any) -> list[dict[str, Any]]:
                found = rows(*args, **given)
                loaded.append(len(found))
                return found

            tx.rows = counted  # type: ignore[method-assign]
            return cancel_jobs(tx, made.id, None), sum(loaded)

        (now, later, told), loaded = await rig.store.write(cancel)
        assert (now, later, told) == (48, 2, sorted(rig.cloud.running))
        assert loaded == 3, "one for what is queued and one for each machine"
        await rig.settle(finish=False)

    run(database_url, test)


def test_a_pool_keeps_warm_machines_beside_those_that_work(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(warm=2, max_machines=4, types=["small"], idle_grace_s=10)
        await rig.settle()
        assert len(rig.cloud.running) == 2
        made = await rig.submit(demand=TWO)
        await rig.plan()
        assert (await rig.job(made.id)).state == "scheduled", "a warm machine takes it at once"
        await rig.settle(finish=False)
        assert len(rig.cloud.running) == 3
        await rig.settle()
        await rig.pass_by(60)
        assert len(rig.cloud.running) == 2

    run(sqlite_url, test)


def test_a_pool_keeps_its_least_number_of_machines_and_buys_none_anew(sqlite_url: str) -> None:
    """What is going back is none of those that stay."""

    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, max_machines=4, types=["small"], idle_grace_s=10)
        await rig.submit(count=2, demand=TWO)
        await rig.settle()
        assert len(rig.cloud.running) == 2
        for _ in range(4):
            # Plans come faster than a provider takes machines back.
            rig.clock.move(10)
            await rig.plan()
        rows = await rig.rows(select(machines))
        assert sorted(row["state"] for row in rows) == ["ready", "returning"]
        await rig.pass_by(60)
        assert (len(rig.cloud.running), len(rig.cloud.launches)) == (1, 2)

    run(sqlite_url, test)


def test_a_machine_that_leaves_is_replaced_where_the_least_number_asks_for_it(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, max_machines=2, types=["small"])
        await rig.submit(demand=TWO)
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        rig.workers[token].notice = "reclaim"
        await rig.talk(finish=False)
        await rig.settle(finish=False)
        rows = await rig.rows(select(machines))
        assert sorted(row["state"] for row in rows) == ["draining", "ready"]

    run(sqlite_url, test)


def test_a_reclaimed_machine_takes_nothing_new_and_its_jobs_run_elsewhere(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=2, types=["small"], market="spot")
        made = await rig.submit(demand=TWO)
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        assert rig.cloud.rented[token][0].market == "spot"
        rig.workers[token].notice = "reclaim"
        await rig.talk(finish=False)
        (row,) = await rig.rows(select(machines))
        assert (row["state"], row["reason"]) == ("draining", "its provider takes it back")
        later = await rig.submit(demand=TWO)
        await rig.settle(finish=False)
        (row,) = await rig.rows(select(jobs).where(jobs.c.array == later.id))
        assert row["machine"] not in (None, token)
        rig.cloud.gone.add(rig.cloud.rented[token][1].cloud_id)
        rig.dead.add(token)
        await rig.pass_by(200)
        await rig.settle()
        job = await rig.job(made.id)
        assert (job.state, job.attempt) == ("completed", 2)

    run(database_url, test)


def test_the_first_machines_are_on_demand_and_the_others_spot(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=4, types=["small"], market="spot", on_demand_base=1)
        await rig.submit(count=4, demand=TWO)
        await rig.settle(finish=False)
        markets = sorted(rig.cloud.rented[token][0].market for token in rig.cloud.running)
        assert markets == ["on_demand", "spot", "spot", "spot"]

    run(sqlite_url, test)


def test_a_budget_is_never_passed_and_said_to_be_why(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=9, types=["small"], budget_micro=2 * SMALL.price_micro + 1)
        made = await rig.submit(count=6, demand=TWO)
        await rig.settle(finish=False)
        assert len(rig.cloud.running) == 2
        (row,) = await rig.rows(select(pools))
        assert row["micro_used"] == 2 * SMALL.price_micro
        await rig.settle()
        assert (await rig.array(made.id)).state == "completed"

    run(database_url, test)


def test_outputs_that_would_go_with_their_machine_are_refused(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        rig.process = Process(rig.store, rig.clock, rig.clouds, "two", outputs_are_shared=False)
        await rig.pool()
        kept = [w.OutputBody(name="results")]
        with pytest.raises(InvalidRequest, match="keeps 'results'"):
            await rig.submit(outputs=kept)
        await rig.submit(outputs=kept, outputs_to="s3://bucket/here")
        await rig.submit()

    run(sqlite_url, test)


def test_a_job_names_a_folder_for_its_outputs_in_local_pools_alone(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        kept = [w.OutputBody(name="results")]
        with pytest.raises(InvalidRequest, match=r"file:///etc/cron\.d, is a folder of a machine"):
            await rig.submit(outputs=kept, outputs_to="file:///etc/cron.d")
        own = await rig.submit(outputs=kept)
        named = await rig.submit(outputs=kept, outputs_to="s3://bucket/here")
        await rig.settle(finish=False)
        told = {job.job: job for one in rig.workers.values() for job, _ in one.attempts.values()}
        assert [told[f"{each.id}.0"].own_store for each in (own, named)] == [True, False]

    run(sqlite_url, test)


def test_a_file_of_a_machine_is_an_input_in_local_pools_alone(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        shadow = w.InputBody(name="a", url="file:///etc/shadow")
        kind = w.CreateJobKind(name="reads", command=["cat", "a"], inputs=[shadow])
        await rig.kinds.create(kind, OPERATOR)
        for given in ({"inputs": [shadow]}, {"kind": "reads"}):
            with pytest.raises(InvalidRequest, match="'a' is a file of a machine"):
                await rig.submit(**given)
        await rig.submit(inputs=[w.InputBody(name="a", url="https://files.example/a")])

    run(sqlite_url, test)


def test_a_private_registry_is_opened_with_an_account_s_credentials(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        body = w.CreateAccount(
            name="registry", provider="model",
            credentials={
                "registry_user": "robot", "registry_password": "hidden-word",
                "registry": "https://registry.example/",
            },
        )  # fmt: skip
        await rig.accounts.create(body, OPERATOR)
        image = "registry.example/train:1"
        submit = rig.process.desk.submit
        with pytest.raises(NotFound):
            await submit(w.SubmitJobs(image=image, registry_account="none"), OPERATOR, None)
        made = await submit(w.SubmitJobs(image=image, registry_account="registry"), OPERATOR, None)
        await rig.settle(finish=False)
        (worker,) = rig.workers.values()
        ((told, _),) = worker.attempts.values()
        assert told.registry is not None
        assert (told.registry.user, told.registry.password) == ("robot", "hidden-word")
        assert told.registry.registry == "registry.example"
        assert "hidden-word" not in repr(await rig.job(made.id))
        assert "hidden-word" not in repr(await rig.array(made.id))

    run(sqlite_url, test)


def _login(**more: str) -> dict[str, str]:
    return {"registry_user": "robot", "registry_password": "hidden-word", **more}


@pytest.mark.parametrize(
    "image",
    ["evil.example/train:1", "registry.example.evil.example/train", "registry.example:5000/train",
     "train:1", "registry.example@evil.example/train", "localhost/train", "//registry.example/x"],
)  # fmt: skip
def test_a_registry_s_password_is_for_no_other_host(sqlite_url: str, image: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        body = w.CreateAccount(
            name="ours", provider="model", credentials=_login(registry="registry.example")
        )
        await rig.accounts.create(body, OPERATOR)
        kind = w.CreateJobKind(name="train", image=image, registry_account="ours")
        await rig.kinds.create(kind, OPERATOR)
        for given in ({"image": image, "registry_account": "ours"}, {"kind": "train"}):
            with pytest.raises(InvalidRequest, match=r"account 'ours' is for 'registry\.example'"):
                await rig.process.desk.submit(w.SubmitJobs(**given), OPERATOR, None)
        own = w.SubmitJobs(kind="train", image="registry.example/train:1")
        await rig.process.desk.submit(own, OPERATOR, None)
        await rig.settle(finish=False)
        (worker,) = rig.workers.values()
        assert [job.image for job, _ in worker.attempts.values()] == ["registry.example/train:1"]

    run(sqlite_url, test)


def test_an_account_whose_login_names_no_host_opens_none(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        body = w.CreateAccount(name="ours", provider="model", credentials=_login())
        await rig.accounts.create(body, OPERATOR)
        asked = w.SubmitJobs(image="registry.example/train:1", registry_account="ours")
        with pytest.raises(InvalidRequest, match="does not say for which host"):
            await rig.process.desk.submit(asked, OPERATOR, None)
        await rig.submit(registry_account="ours")  # it pulls nothing
        hub = w.ChangeAccount(credentials=_login(registry="https://index.docker.io/v1/"))
        await rig.accounts.change("ours", hub, OPERATOR)
        for image in ("train:1", "ours/train:1", "docker.io/ours/train:1", "index.docker.io/a/b"):
            asked = w.SubmitJobs(image=image, registry_account="ours")
            await rig.process.desk.submit(asked, OPERATOR, None)

    run(sqlite_url, test)


@pytest.mark.parametrize("told_before", [False, True], ids=["as-it-joins", "while-it-waits"])
def test_a_queued_job_ends_when_its_account_is_for_another_host(
    sqlite_url: str, told_before: bool
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, max_machines=1)
        body = w.CreateAccount(name="ours", provider="model", credentials=_login(registry="a.b"))
        await rig.accounts.create(body, OPERATOR)
        if told_before:
            await rig.settle()  # its machine is there and polls: the next answer is only read
        asked = w.SubmitJobs(image="a.b/train:1", registry_account="ours", count=2)
        made = await rig.process.desk.submit(asked, OPERATOR, None)
        changed = w.ChangeAccount(credentials=_login(registry="b.b"))
        await rig.accounts.change("ours", changed, OPERATOR)
        other = await rig.submit()
        await rig.settle()
        assert (await rig.array(other.id)).state == "completed"
        for index in (0, 1):
            job = await rig.job(f"{made.id}.{index}")
            assert (job.state, job.reason) == ("failed", "image_denied")
            assert "'ours' is for 'b.b'" in job.message
        assert all(each.startswith(other.id) for each in _started(rig))

    run(sqlite_url, test)


def _started(rig: Rig) -> list[str]:
    return [attempt for worker in rig.workers.values() for attempt in worker.started]
