"""Money and work: nothing is rented and forgotten, nothing given back that somebody uses."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from roost.base.ids import IdSource
from roost.jobs.detecting import Patience
from roost.jobs.owner import Owner
from roost.model.job import Account, CloudMachine, Launch
from roost.parts.part import Loop
from roost.providers.base import OWNER_TAG, tag_of
from roost.testing.clock import HandClock
from roost.testing.jobs import ModelCloud, ModelClouds
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
