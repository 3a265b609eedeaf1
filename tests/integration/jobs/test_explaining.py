"""Why a job waits: each cause is said first where it is the true one, with its numbers."""

from typing import Any

import pytest

from roost.jobs.deciding.planning import HOLD_AFTER_S
from roost.providers.errors import NoCapacity, Throttled
from roost.testing.jobs import LARGE, SMALL
from roost.wire import jobs as w
from tests.integration.jobs.rig import OPERATOR, Rig, run

ONE = w.DemandBody(cpu=1, memory="1GiB")
TWO = w.DemandBody(cpu=2, memory="1GiB")


async def why(rig: Rig, job: str) -> w.ExplainBody:
    return await rig.desk.explain(job, OPERATOR)


@pytest.mark.parametrize(
    ("given", "cause", "said"),
    [
        ({"max_machines": 2}, "pool_limit", "pool 'default' has 2 of 2 machines"),
        (
            {"max_cpu": 5},
            "pool_limit",
            "pool 'default' has 4 of 5 cores, and a machine for it takes 2",
        ),
        (
            {"budget_micro": 2 * SMALL.price_micro + 1},
            "budget",
            "pool 'default' spends 0.2 of 0.2 an hour, and a machine for it costs 0.1",
        ),
    ],
    ids=["machines", "cores", "money"],
)
@pytest.mark.parametrize("whose", ["pool", "account"])
def test_a_limit_that_leaves_no_room_for_a_further_machine_is_why(
    sqlite_url: str, whose: str, given: dict[str, Any], cause: str, said: str
) -> None:
    """Nothing need be used up to the last core: what is left may be too little for a machine."""

    async def test(rig: Rig) -> None:
        await rig.accounts.create(
            w.CreateAccount(name="ours", provider="model", **(given if whose == "account" else {})),
            OPERATOR,
        )
        limits = given if whose == "pool" else {}
        await rig.pool(**({"max_machines": 9, "types": ["small"], "account": "ours"} | limits))
        made = await rig.submit(count=6, demand=TWO)
        await rig.settle(finish=False)

        told = await why(rig, f"{made.id}.5")

        if whose == "account":
            expected = (
                cause.replace("pool", "account"),
                said.replace("pool 'default'", "account 'ours'"),
            )
        else:
            expected = cause, said
        assert (told.cause, told.sentences[0]) == expected

    run(sqlite_url, test)


def test_a_project_that_has_more_than_others_waits_for_them(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["large"], ordering="fair")
        ours = await rig.submit(count=10, demand=ONE)
        await rig.settle(finish=False)
        theirs = await rig.submit(count=3, demand=ONE, project="other")

        told = await why(rig, f"{ours.id}.9")

        assert told.cause == "fairness"
        assert told.sentences[0] == (
            "project 'default' has 100% of pool 'default', and 1 with less have jobs waiting: 3 "
            "come first"
        )
        assert (await why(rig, f"{theirs.id}.0")).cause == "pool_limit"

    run(sqlite_url, test)


@pytest.mark.parametrize(("ordering", "first", "last"), [("largest", TWO, ONE), ("fifo", ONE, TWO)])
def test_who_comes_first_is_counted_by_the_order_of_the_pool(
    sqlite_url: str, ordering: str, first: w.DemandBody, last: w.DemandBody
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"], ordering=ordering)
        await rig.submit(demand=TWO)
        await rig.settle(finish=False)
        made = {}
        for demand in (ONE, TWO):
            rig.clock.move(1)
            made[demand.cpu] = await rig.submit(count=4, demand=demand)

        told = [await why(rig, f"{made[each.cpu].id}.0") for each in (first, last)]

        assert [each.before for each in told] == [0, 4]
        assert f"4 jobs are looked at before it ({ordering})" in told[1].sentences

    run(sqlite_url, test)


def test_room_that_is_held_for_another_job_is_not_promised(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["large"])
        await rig.submit(demand=ONE)
        await rig.settle(finish=False)
        await rig.submit(demand=w.DemandBody(cpu=8, memory="1GiB"))
        await rig.pass_by(HOLD_AFTER_S + 5, finish=False)
        small = await rig.submit(demand=ONE)
        await rig.plan()

        told = await why(rig, small.id)

        assert told.cause == "pool_limit"
        assert any("is held for a job that has waited" in each for each in told.sentences)

    run(sqlite_url, test)


def test_memory_that_is_short_is_said_though_cores_are_free(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"])
        await rig.submit(demand=w.DemandBody(cpu=1, memory="3GiB"))
        await rig.settle(finish=False)
        made = await rig.submit(demand=w.DemandBody(cpu=1, memory="2GiB"))

        told = await why(rig, made.id)

        assert told.sentences[1] == (
            "it asks for 1 cores and 2 GiB; the nearest of 1 machines has 1 cores and 1 GiB free"
        )

    run(sqlite_url, test)


def test_a_machine_that_was_asked_for_in_vain_is_not_on_its_way(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"])
        made = await rig.submit(demand=ONE)
        await rig.plan()
        assert (await why(rig, made.id)).cause == "starting"
        rig.cloud.faults.append((Throttled("model", "not so often"), False))
        await rig.process.renting.work()

        told = await why(rig, made.id)

        assert (told.cause, told.sentences[0]) == ("provider", "model: not so often")
        assert len(told.sentences) == 2

    run(sqlite_url, test)


def test_a_type_that_was_taken_off_the_list_leaves_a_job_too_large(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        rig.cloud.faults.append((NoCapacity("model", "none of the large"), False))
        made = await rig.submit(demand=w.DemandBody(cpu=4, memory="1GiB"))
        await rig.pools.change("default", w.ChangePool(types=[SMALL.name]), OPERATOR)
        assert LARGE.cpu_milli > 4000 > SMALL.cpu_milli

        told = await why(rig, made.id)

        assert told.cause == "too_large"

    run(sqlite_url, test)


def test_a_job_that_a_busy_machine_will_hold_is_not_too_large(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=[LARGE.name])
        whole = w.DemandBody(cpu=8, memory="1GiB")
        await rig.submit(demand=whole)
        await rig.settle(finish=False)
        made = await rig.submit(demand=whole)
        await rig.pools.change("default", w.ChangePool(types=[SMALL.name]), OPERATOR)

        assert (await why(rig, made.id)).cause == "room"

        await rig.settle()
        assert (await rig.job(made.id)).state == "completed"

    run(sqlite_url, test)
