"""How long VMs lived is counted in the ledger, once each, and is expected of others like them."""

import asyncio

import pytest
from sqlalchemy import func, select

from roost.control.learning import lives
from roost.control.learning.lives import COUNT_S, ONE
from roost.ledger.schema.tables import lifetimes, vm_ends, vms
from roost.model.outlook import NEVER_S
from roost.wire.profiles import ProfileQuery
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run, run_two

HOUR = 3600
ENDS = 2  # the column of `fleet.vms.expected`


async def lived(rig: Rig, seconds: float, *names: str, **given: object) -> None:
    """Let VMs be created, live for so long, and be deleted and gone."""
    for name in names:
        await rig.create(name, **given)
    await rig.settle()
    rig.clock.move(seconds)
    for name in names:
        await rig.plane.vms.delete(name, None, OPERATOR)
    await rig.settle()
    assert not await rig.rows(select(vms.c.name).where(vms.c.name.in_(names)))


async def counted(rig: Rig) -> int:
    """Return how many ended VMs the counts of the ledger have."""
    (row,) = await rig.rows(select(func.sum(lifetimes.c.weight).label("all")))
    return int(row["all"] or 0) // ONE


def expected_end(rig: Rig, vm: str) -> int | None:
    """Return the seconds after which the fleet of a process expects a VM to be gone."""
    fleet = rig.plane.roster.fleet
    end = int(fleet.vms.expected[fleet.vms.numbers[f"{vm}:run"], ENDS])
    return None if end >= NEVER_S else end - rig.clock.wall_ms() // 1000


def test_vms_like_those_that_ended_are_expected_to_end_like_them(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=64, memory=64)
        await lived(rig, 2 * HOUR, *(f"a{number}" for number in range(25)))
        assert len(await rig.rows(select(vm_ends))) == 25
        before = await rig.running("before")
        assert expected_end(rig, before.id) is None  # nothing was counted yet
        await rig.plane.learning.lives.count()
        await rig.plane.learning.learn()
        assert not await rig.rows(select(vm_ends))
        assert await counted(rig) == 25
        after = await rig.running("after")
        for vm in (before, after):
            assert expected_end(rig, vm.id) == pytest.approx(2 * HOUR, rel=0.5)
        await rig.restart()
        assert expected_end(rig, after.id) == pytest.approx(2 * HOUR, rel=0.5)

    run(database_url, test, dated=True)


def test_a_profile_tells_how_long_a_vm_of_its_age_will_still_live(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=64, memory=64)
        await rig.running("web")
        asked = ProfileQuery(hours=1)
        assert (await rig.plane.learning.profile("web", asked, ADMIN)).lifetime is None
        await lived(rig, 2 * HOUR, *(f"a{number}" for number in range(25)))
        await rig.plane.learning.lives.count()
        await rig.plane.learning.learn()
        await rig.running("new")
        told = (await rig.plane.learning.profile("new", asked, ADMIN)).lifetime
        assert told is not None
        assert told.half_s == pytest.approx(2 * HOUR, rel=0.5)
        assert told.early_s is not None
        assert told.early_s < told.half_s
        assert (told.age_s, told.seen) == (0, 26)
        await rig.create("planned", until="2026-11-28T12:00:00Z")
        assert (await rig.plane.learning.profile("planned", asked, ADMIN)).lifetime is None

    run(sqlite_url, test, dated=True)


def test_a_vm_that_outlives_its_kind_is_expected_to_go_on(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=64, memory=64)
        await lived(rig, 600, *(f"a{number}" for number in range(45)))
        await lived(rig, 40 * HOUR, "long", "longer", "longest")
        await rig.plane.learning.lives.count()
        await rig.plane.learning.learn()
        made = await rig.running("young")
        young = expected_end(rig, made.id)
        rig.clock.move(2 * HOUR)
        await rig.plane.learning.learn()
        old = expected_end(rig, made.id)
        assert young is not None
        assert old is not None
        assert young < 1000 < 10 * HOUR < old

    run(sqlite_url, test, dated=True)


def test_what_owners_said_or_what_never_ran_is_not_counted(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=4)
        await rig.create("waits", cpu=50, on_no_fit="queue")
        await rig.plane.vms.delete("waits", None, OPERATOR)
        await lived(rig, 60, "said", until="2027-11-18T12:00:00Z")
        await lived(rig, 60, "plain")
        assert len(await rig.rows(select(vm_ends))) == 1

    run(sqlite_url, test, dated=True)


def test_two_processes_count_every_end_once(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await first.host("h1", cpu=64, memory=64)
        await lived(first, HOUR, *(f"a{number}" for number in range(30)))
        await second.plane.follower.catch_up()
        both = first.plane.learning.lives, second.plane.learning.lives
        await asyncio.gather(*(each.count() for each in both))
        assert await counted(first) == 30
        await asyncio.gather(*(each.count() for each in both))
        assert await counted(first) == 30
        for rig in (first, second):
            await rig.plane.learning.learn()
        digests = {rig.plane.roster.fleet.basis.digest for rig in (first, second)}
        assert len(digests) == 1
        assert digests != {""}

    run_two(postgres_url, test, dated=True)


def test_many_counts_are_halved(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "MOST_COUNTED", 20)

    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=64, memory=64)
        await lived(rig, HOUR, *(f"a{number}" for number in range(30)))
        await rig.plane.learning.lives.count()
        assert await counted(rig) == 15

    run(sqlite_url, test, dated=True)


def test_a_decision_by_lifetimes_names_their_digest_and_explain_shows_ends(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=64, memory=64)
        await lived(rig, HOUR, *(f"a{number}" for number in range(25)))
        await rig.plane.learning.lives.count()
        await rig.plane.learning.learn()
        made = await rig.create("next", strategy="lifetime_aware")
        digest = rig.plane.roster.fleet.basis.digest
        assert digest
        assert made.placement.foreseen.digest == digest

    run(sqlite_url, test, dated=True)


def test_a_vm_that_ends_once_more_under_its_id_ends_all_the_same(database_url: str) -> None:
    """Two hosts may have held a copy, and both were adopted, one after the other's end."""

    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8, memory=8)
        await lived(rig, 60, "one")
        [earlier] = await rig.rows(select(vm_ends))
        made = await rig.running("two")
        await rig.store.write(lambda tx: tx.insert(vm_ends, {**earlier, "vm": made.id}))
        await lived(rig, 60, "other")
        await rig.plane.vms.delete("two", None, OPERATOR)
        await rig.settle()
        assert await rig.row("two") is None
        await rig.plane.learning.lives.count()
        assert await counted(rig) == 3

    run(database_url, test, dated=True)


def test_the_loop_counts_by_itself(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        (loop,) = rig.plane.learning.lives.loops()
        assert loop.pause_s == COUNT_S
        await rig.host("h1", cpu=8, memory=8)
        await lived(rig, 60, "one")
        await loop.work()
        assert await counted(rig) == 1

    run(sqlite_url, test, dated=True)
