"""A limit that is lowered: what is idle goes at once, what is busy drains, nothing is ended."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import select

from roost.jobs import planner
from roost.ledger.schema.jobtables import machines
from roost.ledger.writes.transaction import Tx
from roost.parts.singleton import NotHolder
from roost.testing.jobs import SMALL
from roost.wire import jobs as w
from tests.integration.jobs.rig import OPERATOR, Process, Rig, run

WHOLE = w.DemandBody(cpu=2, memory="1GiB")  # all cores of the small type
#: Of four small machines every one of these leaves two.
TO_TWO: dict[str, dict[str, Any]] = {
    "machines": {"max_machines": 2},
    "cpus": {"max_cpu": 5},
    "money": {"budget_micro": 2 * SMALL.price_micro},
}


async def states(rig: Rig) -> Counter[str]:
    rows = await rig.rows(select(machines))
    return Counter(row["state"] for row in rows)


async def lower(rig: Rig, whose: str, **given: Any) -> None:
    rig.lowered.add({"pool": "default", "account": "ours"}[whose])
    if whose == "pool":
        await rig.pools.change("default", w.ChangePool(**given), OPERATOR)
    else:
        await rig.accounts.change("ours", w.ChangeAccount(**given), OPERATOR)


@pytest.mark.parametrize("what", TO_TWO)
@pytest.mark.parametrize("whose", ["pool", "account"])
def test_busy_machines_beyond_a_lowered_limit_drain_while_work_waits(
    whose: str, what: str, database_url: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.accounts.create(w.CreateAccount(name="ours", provider="model"), OPERATOR)
        await rig.pool(types=["small"], account="ours", idle_grace_s=3600, max_machines=10)
        first = await rig.submit(count=4, demand=WHOLE)
        await rig.settle(finish=False)
        waiting = await rig.submit(count=4, demand=WHOLE)

        await lower(rig, whose, **TO_TWO[what])
        await rig.settle(finish=False)

        assert await states(rig) == {"ready": 2, "draining": 2}
        assert (await rig.array(first.id)).jobs.live == 4, "nothing that runs is ended"
        pool = await rig.pools.get("default", OPERATOR)
        assert "since its limits were lowered" in pool.trouble
        told = await rig.desk.explain(waiting.id + ".0", OPERATOR)
        assert told.cause == ("budget" if what == "money" else f"{whose}_limit")
        assert "it was lowered" in " ".join(told.sentences)
        said = [(await rig.desk.explain(f"{first.id}.{n}", OPERATOR)).sentences for n in range(4)]
        assert sum("takes no further job" in " ".join(each) for each in said) == 2

        await rig.pass_by(30)
        assert await states(rig) == {"ready": 2, "returned": 2}
        for array in (first, waiting):
            done = await rig.array(array.id)
            assert done.jobs.completed == 4
        attempts = {(await rig.job(f"{first.id}.{n}")).attempt for n in range(4)}
        assert attempts == {1}
        assert len(rig.cloud.launches) == 4
        assert (await rig.pools.get("default", OPERATOR)).trouble == ""

    run(database_url, test)


def test_nothing_is_written_while_machines_drain(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], idle_grace_s=3600, max_machines=4)
        await rig.submit(count=4, demand=WHOLE)
        await rig.settle(finish=False)
        await lower(rig, "pool", max_machines=2)
        await rig.settle(finish=False)
        assert await states(rig) == {"ready": 2, "draining": 2}
        asked: list[Tx] = []

        def shed(tx: Tx) -> list[str]:
            asked.append(tx)
            return []

        monkeypatch.setattr(planner, "shed_machines", shed)
        for _ in range(5):
            await rig.planner.plan_all()
        assert asked == []

    run(database_url, test)


def test_idle_machines_beyond_a_lowered_limit_go_at_once(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], idle_grace_s=3600, warm=1)
        made = await rig.submit(count=4, demand=WHOLE)
        await rig.settle(finish=False)
        busy = sorted(rig.workers)[0]
        for name, worker in rig.workers.items():
            if name != busy:
                worker.finish()
        await rig.settle(finish=False)
        assert await states(rig) == {"ready": 4}

        await lower(rig, "pool", max_machines=1)
        await rig.settle(finish=False)

        assert await states(rig) == {"ready": 1, "returned": 3}
        assert rig.cloud.running == [busy]
        assert (await rig.array(made.id)).jobs.live == 1

    run(database_url, test)


def test_a_machine_on_its_way_goes_before_one_that_works(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"])
        await rig.submit(demand=WHOLE)
        await rig.settle(finish=False)
        await rig.submit(count=3, demand=WHOLE)
        await rig.plan()  # wanted, and nobody has asked for them yet
        assert await states(rig) == {"ready": 1, "pending": 3}

        await lower(rig, "pool", max_machines=2)
        await rig.settle(finish=False)

        assert await states(rig) == {"ready": 2, "returned": 2}
        assert len(rig.cloud.launches) == 2, "what nobody had asked for is not asked for"

    run(database_url, test)


def test_a_pool_with_no_limit_left_gives_everything_back_and_can_be_deleted(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], idle_grace_s=3600)
        made = await rig.submit(count=2, demand=WHOLE)
        await rig.settle(finish=False)
        await lower(rig, "pool", max_machines=0)
        await rig.pass_by(60, finish=False)
        assert await states(rig) == {"draining": 2}, "a drain takes as long as its jobs"
        await rig.pass_by(30)
        assert rig.cloud.running == []
        assert (await rig.array(made.id)).state == "completed"
        await rig.pools.delete("default", OPERATOR)

    run(sqlite_url, test)


def test_a_planner_whose_lease_was_taken_over_lets_no_machine_go(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"])
        await rig.submit(count=2, demand=WHOLE)
        await rig.settle(finish=False)
        await lower(rig, "pool", max_machines=1)
        late, other = rig.process.planner, Process(rig.store, rig.clock, rig.clouds, "two")
        await other.leases.tick()
        rig.clock.move(20.0)
        await other.leases.tick()
        assert other.planner.singleton.token is not None

        with pytest.raises(NotHolder):
            await late.plan_all()
        assert await states(rig) == {"ready": 2}

        await other.planner.plan_all()
        assert await states(rig) == {"ready": 1, "draining": 1}

    run(database_url, test)
