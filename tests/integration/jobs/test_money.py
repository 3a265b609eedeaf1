"""Money and work: nothing is rented and forgotten, nothing given back that somebody uses."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict
from roost.base.ids import IdSource
from roost.jobs.detecting import Patience
from roost.jobs.owner import Owner
from roost.jobs.renting import MOST_LAUNCHES, UNNAMED_S
from roost.ledger.schema.jobtables import machines
from roost.ledger.writes.transaction import Tx
from roost.model.job import Account, CloudMachine, Launch
from roost.parts.part import Loop
from roost.providers.base import OWNER_TAG, tag_of
from roost.providers.errors import Unreachable
from roost.testing.clock import HandClock
from roost.testing.jobs import ModelCloud, ModelClouds, ModelWorker
from roost.wire import jobs as w
from tests.databases import opened
from tests.integration.jobs.rig import OPERATOR, Process, Rig, run


def test_idle_machines_of_several_pools_are_all_given_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("one", "two"):
            await rig.pool(name, idle_grace_s=30)
            await rig.submit(pool=name, count=2)
        await rig.pool("empty", idle_grace_s=30)
        await rig.settle()
        assert len(rig.cloud.running) == 2
        await rig.pass_by(60)
        assert rig.cloud.running == []

    run(database_url, test)


def test_the_owner_of_machines_is_the_ledger_s_and_no_other_s(
    database_url: str, tmp_path: Path
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        await rig.submit()
        await rig.settle()
        (launch,) = rig.cloud.launches
        tags = [await Owner(rig.store, IdSource(rig.clock.wall_ms, Random(n))).tag() for n in "ab"]
        assert tags == [tag_of(launch.tags, OWNER_TAG)] * 2

        clock = HandClock()
        async with opened(f"sqlite:///{tmp_path / 'other.db'}", clock) as other:
            assert await Owner(other, IdSource(clock.wall_ms, Random("c"))).tag() not in tags

    run(database_url, test)


def test_machines_that_nobody_could_hear_are_not_taken_for_silent(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit()
        await rig.settle(finish=False)
        await rig.pass_by(10, finish=False)
        rig.clock.move(300)  # the ledger was away, or this process stood still

        await rig.process.detecting.look()

        job = await rig.job(made.id)
        assert (job.state, job.attempt) == ("running", 1)
        await rig.pass_by(30)
        assert (await rig.job(made.id)).attempt == 1
        assert (await rig.job(made.id)).state == "completed"

    run(sqlite_url, test)


def test_a_second_machine_of_one_launch_is_given_back(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        made = await rig.submit()
        await rig.settle(finish=False)
        (token,) = rig.cloud.running
        launch, cloud = rig.cloud.rented[token]
        rig.cloud.rented["twin"] = launch, replace(cloud, cloud_id="i-twin")
        rig.cloud.untracked.add("twin")

        await rig.pass_by(Patience().untracked_s + 120, finish=False, step=20)

        assert rig.cloud.running == [token]
        assert (await rig.job(made.id)).state == "running"

    run(sqlite_url, test)


def test_an_account_that_no_pool_uses_any_more_is_still_looked_through(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await _account(rig, "ours")
        await rig.pool("gone", account="ours", idle_grace_s=0)
        await rig.submit(pool="gone")
        await rig.settle()
        (launch,) = rig.cloud.launches
        await rig.pass_by(60)
        await rig.process.pools.delete("gone", OPERATOR)
        _, cloud = rig.cloud.rented[launch.token]
        rig.cloud.rented["stray"] = (
            replace(launch, token="stray"),
            replace(cloud, cloud_id="i-stray", machine="stray"),
        )
        rig.cloud.untracked.add("stray")

        await rig.pass_by(Patience().untracked_s + 120, step=20)

        assert rig.cloud.running == []

    run(sqlite_url, test)


class HangingCloud(ModelCloud):
    """A provider that never answers a launch, nor which machines it has."""

    async def launch(self, launch: Launch) -> CloudMachine:
        await asyncio.Event().wait()
        raise AssertionError

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        raise TimeoutError  # as after the time that one provider has for a sweep


class TwoClouds(ModelClouds):
    """One cloud that answers, and for the account `slow` one that does not."""

    async def open(
        self, name: str, account: Account | None, credentials: Mapping[str, str]
    ) -> ModelCloud:
        if account is not None and account.name == "slow":
            return HangingCloud()
        return self.cloud


def test_a_provider_that_does_not_answer_holds_up_no_other(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        rig.process = Process(rig.store, rig.clock, TwoClouds(rig.cloud), "two")
        for name in ("slow", "quick"):
            await _account(rig, name)
            await rig.pool(name, account=name)
        await rig.submit(pool="slow")
        await rig.plan()
        turns = [asyncio.create_task(_repeat(loop)) for loop in rig.process.renting.loops()]
        try:
            rig.process.renting.summons.ring()
            await asyncio.sleep(0.2)
            await rig.submit(pool="quick")
            await rig.plan()
            async with asyncio.timeout(10):
                while not rig.cloud.launches:
                    rig.process.renting.summons.ring()
                    await asyncio.sleep(0.01)
            await rig.process.detecting.look()
        finally:
            for turn in turns:
                turn.cancel()
            await asyncio.gather(*turns, return_exceptions=True)

    run(sqlite_url, test)


async def _repeat(loop: Loop) -> None:
    with suppress(asyncio.CancelledError):
        while True:
            await loop.work()
            await asyncio.sleep(0.01)


async def _account(rig: Rig, name: str) -> None:
    body = w.CreateAccount(name=name, provider="model")
    await rig.process.accounts.create(body, OPERATOR)


class SlowCloud(ModelCloud):
    """A provider whose machines begin before it answers."""

    before_answer: Callable[[Launch], Awaitable[None]] | None = None

    async def launch(self, launch: Launch) -> CloudMachine:
        found = await super().launch(launch)
        if self.before_answer is not None:
            await self.before_answer(launch)
        return found


def test_a_machine_that_was_never_named_is_given_back_and_not_left_to_the_sweep(
    database_url: str,
) -> None:
    """The worker spoke before the provider's answer was lost, so no row knows its name there."""

    async def test(rig: Rig) -> None:
        async def speak(launch: Launch) -> None:
            rig.workers[launch.token] = worker = ModelWorker(rig.process.door, launch)
            await worker.join()
            await worker.poll()
            raise Unreachable("model", "timed out")

        assert isinstance(rig.cloud, SlowCloud)
        rig.cloud.before_answer = speak
        await rig.pool(idle_grace_s=10)
        await rig.submit()
        await rig.settle()
        (row,) = await rig.rows(select(machines))
        assert (row["state"], row["cloud_id"]) == ("ready", None)
        rig.cloud.hidden.add(row["id"])  # lists are late too
        await rig.pass_by(40)
        assert rig.cloud.running == [row["id"]]
        rig.cloud.hidden.clear()

        await rig.pass_by(20)

        assert rig.cloud.running == []
        (row,) = await rig.rows(select(machines))
        assert row["state"] == "returned"

    run(database_url, test, cloud=SlowCloud())


def test_a_machine_that_no_list_ever_shows_counts_no_longer_than_a_while(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        rig.cloud.faults += [(Unreachable("model", "timed out"), False)] * MOST_LAUNCHES
        await rig.pool(max_machines=1)
        await rig.submit()
        while len(rig.cloud.launches) < MOST_LAUNCHES:
            await rig.pass_by(60)
        (first,) = await rig.rows(select(machines))
        assert first["state"] == "returning"
        await rig.pass_by(UNNAMED_S + 60)
        await rig.settle()
        rows = {row["id"]: row["state"] for row in await rig.rows(select(machines))}
        assert rows.pop(first["id"]) == "returned"
        assert list(rows.values()) == ["ready"]

    run(sqlite_url, test)


class BrokenCloud(ModelCloud):
    """A provider whose SDK throws what nobody expected, for one machine."""

    broken: bool = True

    async def launch(self, launch: Launch) -> CloudMachine:
        if self.broken:
            self.broken = False
            raise KeyError("Reservations")
        return await super().launch(launch)

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        if not self.launches:
            raise ZeroDivisionError
        return await super().machines(owner)


def test_an_account_stays_while_a_launch_that_nobody_heard_of_may_show(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.accounts.create(w.CreateAccount(name="ours", provider="model"), OPERATOR)

        def asked(tx: Tx) -> None:
            row: dict[str, Any] = {}
            for column in machines.columns:
                number = column.type.python_type is int
                row[column.name] = None if column.nullable else 0 if number else ""
            tx.insert(machines, row | {"id": "machine-1", "account": "ours", "state": "returned",
                                       "launches": 1, "ended_ms": tx.at_ms})  # fmt: skip

        await rig.store.write(asked)
        rig.clock.move(Patience().untracked_s - 1)
        with pytest.raises(Conflict, match="machine-1"):
            await rig.accounts.delete("ours", OPERATOR)
        rig.clock.move(1)
        await rig.accounts.delete("ours", OPERATOR)

    run(sqlite_url, test)


def test_an_error_that_nobody_expected_holds_up_no_other_machine(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=3, min_machines=3)
        await rig.plan()
        await rig.process.detecting.look()  # the sweep meets one too
        await rig.process.renting.work()
        rows = await rig.rows(select(machines))
        assert sorted(row["state"] for row in rows) == ["allocated", "allocated", "pending"]
        assert all(not row["claimed_by"] for row in rows)
        trouble = (await rig.process.pools.get("default", OPERATOR)).trouble
        assert "KeyError" in trouble
        reasons = " ".join(row["reason"] for row in rows)
        assert "Reservations" not in trouble + reasons, "what an SDK says may hold secrets"
        writes: list[str] = []
        write = rig.store.write

        async def counted(change: Any, actor: str = "roost") -> Any:
            writes.append(actor)
            return await write(change, actor)

        rig.process.renting._store.write = counted
        assert await rig.process.renting._work_for_one() == 0
        assert writes == [], "nothing is written while its only machine backs off"
        rig.process.renting._store.write = write
        await rig.pass_by(10)
        assert len(rig.cloud.running) == 3

    run(sqlite_url, test, cloud=BrokenCloud())


def test_machines_of_a_provider_without_accounts_are_swept_when_its_last_pool_is_gone(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool("gone", idle_grace_s=0)
        await rig.submit(pool="gone")
        await rig.settle()
        (launch,) = rig.cloud.launches
        await rig.pass_by(60)
        await rig.process.pools.delete("gone", OPERATOR)
        _, cloud = rig.cloud.rented[launch.token]
        stray = replace(cloud, cloud_id="i-stray", machine="stray")
        rig.cloud.rented["stray"] = replace(launch, token="stray"), stray
        rig.cloud.untracked.add("stray")

        await rig.pass_by(Patience().untracked_s + 120, step=20)

        assert rig.cloud.running == []

    run(sqlite_url, test)


def test_what_is_gone_is_remembered_nowhere(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        process = rig.process
        await _account(rig, "ours")
        await rig.pool(idle_grace_s=0, account="ours")
        made = await rig.submit(count=3, retries=1)
        rig.ending = lambda a: {"outcome": "failed", "reason": "exit_code", "exit_code": 1}
        await rig.settle()
        await rig.desk.cancel(made.id, OPERATOR)
        (launch, cloud), *_ = rig.cloud.rented.values()
        rig.cloud.rented["stray"] = (
            replace(launch, token="stray"),
            replace(cloud, cloud_id="i-stray", machine="stray"),
        )
        rig.cloud.untracked.add("stray")
        await rig.pass_by(120)
        assert len(process.detecting._unknown) > 0
        await rig.pass_by(Patience().untracked_s + 120, step=20)
        assert rig.cloud.running == []
        await rig.process.pools.delete("default", OPERATOR)
        await rig.process.accounts.delete("ours", OPERATOR)
        await rig.pool("other", idle_grace_s=0)
        await rig.submit(pool="other")
        await rig.settle()
        await rig.pass_by(200)

        assert len(process.door._heard) <= 1  # whoever spoke last
        assert process.planner._held == {}
        for unchanged in (
            process.detecting._unknown, process.detecting._missing, process.detecting._machines,
            process.planner._idle,
        ):  # fmt: skip
            assert len(unchanged) == 0
        catalogue = process.renting._catalogue
        assert catalogue._open.keys() | catalogue._offers.keys() == {("model", "")}

    run(sqlite_url, test)
