"""A job's life: submitted, assigned, run, collected; the pool grows and goes back to nothing."""

from threading import Thread, current_thread
from types import ModuleType
from typing import Any

import pytest

from roost.app import jobs as app_jobs
from roost.app.options import ServeOptions
from roost.base.errors import InvalidRequest
from roost.jobs import submitting
from roost.model.job import Account
from roost.testing.jobs import LARGE, SMALL
from roost.wire import jobs as w
from tests.integration.jobs.rig import OPERATOR, Rig, run


def test_a_job_runs_and_the_pool_goes_back_to_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(idle_grace_s=60)
        made = await rig.submit("echo", "hello")
        assert made.state == "queued"

        await rig.settle()

        job = await rig.job(made.id)
        assert (job.state, job.exit_code, job.attempt, job.reason) == ("completed", 0, 1, "")
        assert rig.cloud.running, "it is kept for its grace"
        await rig.pass_by(120)
        assert rig.cloud.running == []
        assert (await rig.array(made.id)).state == "completed"

    run(database_url, test)


def test_an_array_runs_each_of_its_items_once(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit("work", "{item}", "{index}", items=["a", "b c", {"x": 1}])

        await rig.settle(finish=False)

        told = [each.command for x in rig.workers.values() for each, _ in x.attempts.values()]
        assert sorted(told) == [["work", "a", "0"], ["work", "b c", "1"], ["work", '{"x":1}', "2"]]
        await rig.settle()
        assert (await rig.array(made.id)).jobs.completed == 3

    run(database_url, test)


def test_the_cheapest_machines_are_wanted_and_never_more_than_the_pool_may_have(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=3)
        await rig.submit(count=100, demand=w.DemandBody(cpu=1, memory="1GiB"))

        await rig.settle(finish=False)

        types = sorted(rig.cloud.rented[token][0].type.name for token in rig.cloud.running)
        assert types == [LARGE.name] * 3
        assert SMALL.price_micro * 4 > LARGE.price_micro
        await rig.settle()

    run(database_url, test)


def test_a_job_larger_than_any_type_is_refused_with_the_nearest(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        body = w.SubmitJobs(command=["x"], demand=w.DemandBody(cpu=4, memory="64GiB"))

        with pytest.raises(InvalidRequest, match=r"64 GiB.*'large'"):
            await rig.desk.submit(body, OPERATOR, None)

    run(database_url, test)


def test_what_takes_long_is_not_done_on_the_event_loop(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand items are checked beside everybody's requests, and SDKs imported so."""
    threads: dict[str, Thread] = {}

    def noted(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            threads[name] = current_thread()
            return real(*args)

        monkeypatch.setattr(module, name, call)

    noted(submitting, "_check")
    noted(app_jobs, "_open_aws")

    async def test(rig: Rig) -> None:
        await rig.pool()
        await rig.submit("echo", "{item}", items=[1, 2])
        account = Account("ours", "aws", options=(("region", "eu-central-1"),))
        opener = app_jobs.openers(ServeOptions(), rig.clock, str)["aws"]
        await (await opener(account, {"access_key": "a", "secret_key": "b"})).close()
        assert threads.keys() == {"_check", "_open_aws"}
        assert current_thread() not in threads.values()

    run(sqlite_url, test)
