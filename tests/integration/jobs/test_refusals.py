"""What a provider refuses: another type is rented instead, the same one later and less often."""

from dataclasses import replace
from itertools import cycle

import pytest
from sqlalchemy import select

from roost.base.errors import InvalidRequest
from roost.jobs.deciding.experience import REMEMBERED_MS
from roost.jobs.detecting import Patience
from roost.jobs.refusals import AGAIN, SILENT, read_refusals
from roost.ledger.schema.jobtables import machines
from roost.providers.errors import (
    BadCredentials,
    NoCapacity,
    ProviderError,
    QuotaReached,
    Refused,
)
from roost.testing.jobs import LARGE, SMALL, ModelCloud
from roost.wire import jobs as w
from tests.integration.jobs.rig import OPERATOR, Rig, run

IN_REGIONS = (
    replace(SMALL, name="near", regions=("east", "west", "south")),
    replace(LARGE, name="far", regions=("west",)),
)
ONE = w.DemandBody(cpu=1, memory="1GiB")


def refuse(cloud: ModelCloud, *errors: ProviderError) -> None:
    cloud.faults += [(error, False) for error in errors]


@pytest.mark.parametrize("kind", [NoCapacity, QuotaReached])
def test_a_type_that_is_not_to_be_had_is_passed_over_for_the_next(
    database_url: str, kind: type[ProviderError]
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool()
        refuse(rig.cloud, kind("model", "none of these"))
        made = await rig.submit(demand=ONE)

        await rig.settle(finish=False)

        assert [each.type.name for each in rig.cloud.launches] == [SMALL.name, LARGE.name]
        assert (await rig.job(made.id)).state == "running"
        await rig.settle()

    run(database_url, test)


@pytest.mark.parametrize("kind", [BadCredentials, Refused, NoCapacity, QuotaReached])
def test_a_provider_that_always_refuses_is_asked_less_and_less_and_said_to_be_why(
    database_url: str, kind: type[ProviderError]
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"])
        refuse(rig.cloud, *(kind("model", "not for you") for _ in range(100)))
        made = await rig.submit(demand=ONE)

        await rig.pass_by(600, step=1)

        asked = len(rig.cloud.launches)
        assert 6 <= asked <= 12, asked
        told = await rig.desk.explain(made.id, OPERATOR)
        assert (told.cause, told.sentences[0]) == ("provider", "model: not for you")
        (pool,) = (await rig.pools.list(OPERATOR)).pools
        assert not pool.machines
        rig.cloud.faults.clear()
        await rig.pass_by(AGAIN.most_s + 10)
        assert (await rig.job(made.id)).state == "completed"
        rows = await rig.rows(select(machines.c.state).where(machines.c.state == "failed"))
        assert len(rows) == asked

    run(database_url, test)


def test_what_may_have_been_made_all_the_same_is_asked_for_by_its_own_token(
    sqlite_url: str,
) -> None:
    """A second asking that is refused says nothing of the first, whose answer was lost."""

    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1)
        rig.cloud.faults += [
            (ProviderError("model", "the line broke"), True),
            (NoCapacity("model", "none is left"), False),
        ]
        made = await rig.submit(demand=ONE)

        await rig.pass_by(60)

        assert len({each.token for each in rig.cloud.launches}) == 1
        assert (await rig.job(made.id)).state == "completed"

    run(sqlite_url, test)


WHOLE = w.DemandBody(cpu=1, memory="4GiB")  # of the small type, by what its provider says


def test_a_job_that_only_fits_by_what_the_provider_says_rents_no_machine_after_machine(
    database_url: str,
) -> None:
    """A machine keeps a twentieth of its memory for itself: what came says what will come."""

    async def test(rig: Rig) -> None:
        rig.reserve = 0.05
        await rig.pool(types=["small"])
        made = await rig.submit(demand=WHOLE)

        await rig.pass_by(600)

        assert len(rig.cloud.launches) <= 2, len(rig.cloud.launches)
        assert not rig.cloud.running
        told = await rig.desk.explain(made.id, OPERATOR)
        assert told.cause == "too_large"
        assert "machines of type 'small' came with 2 cores and 3.8 GiB" in told.sentences[0]
        with pytest.raises(InvalidRequest, match=r"nearest, 'small', .* 3\.8 GiB"):
            await rig.submit(demand=WHOLE)
        less = await rig.submit(demand=w.DemandBody(cpu=1, memory="3.75GiB"))
        await rig.pass_by(30)
        assert (await rig.job(less.id)).state == "completed"

    run(database_url, test)


def test_machines_with_much_memory_and_others_with_many_cores_are_none_with_both(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        rig.forms = cycle([(0.1, 0.0), (0.0, 0.25)])
        await rig.pool(types=["small"], idle_grace_s=0)
        two = await rig.submit(count=2, demand=w.DemandBody(cpu=1.25, memory="1GiB"))
        whole = await rig.submit(demand=w.DemandBody(cpu=2, memory="4GiB"), needs=[two.id])
        await rig.settle()
        assert (await rig.array(two.id)).state == "completed"

        await rig.pass_by(900)

        assert len(rig.cloud.launches) == 2, len(rig.cloud.launches)
        assert not rig.cloud.running
        assert (await rig.desk.explain(whole.id, OPERATOR)).cause == "too_large"
        cores = await rig.submit(demand=w.DemandBody(cpu=2, memory="3GiB"))
        await rig.pass_by(60)
        assert (await rig.job(cores.id)).state == "completed"

    run(database_url, test)


def test_a_job_too_large_for_what_came_gets_the_next_larger_type(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        rig.reserve = 0.05
        await rig.pool(budget_micro=LARGE.price_micro + SMALL.price_micro)
        made = await rig.submit(demand=WHOLE)

        await rig.pass_by(60)

        names = [each.type.name for each in rig.cloud.launches]
        assert names == [SMALL.name, LARGE.name]
        assert (await rig.job(made.id)).state == "completed"
        await rig.pass_by(10)  # what a machine costs and counts is what its provider says
        again = await rig.submit(demand=WHOLE)
        await rig.pass_by(60)
        assert (await rig.job(again.id)).state == "completed"

    run(sqlite_url, test)


def test_what_came_long_ago_is_forgotten_and_tried_once_more(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        rig.reserve = 0.05
        await rig.pool(types=["small"])
        made = await rig.submit(demand=WHOLE)
        await rig.pass_by(600)
        rig.reserve = 0.0
        rig.clock.move(REMEMBERED_MS / 1000)
        await rig.pass_by(60)
        assert (await rig.job(made.id)).state == "completed"

    run(sqlite_url, test)


def test_machines_whose_workers_never_speak_are_rented_less_and_less(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        rig.mute = True
        await rig.pool(types=["small"])
        made = await rig.submit(count=8, demand=w.DemandBody(cpu=2, memory="1GiB"))

        await rig.pass_by(4 * 3600, step=30)

        # Four at once, as many as the pool may have; then one at a time, after longer and longer.
        assert 4 + 4 <= len(rig.cloud.launches) <= 4 + 8, len(rig.cloud.launches)
        (pool,) = (await rig.pools.list(OPERATOR)).pools
        assert "never speak: is --worker-server reachable?" in pool.trouble
        told = await rig.desk.explain(f"{made.id}.0", OPERATOR)
        assert pool.trouble in told.sentences
        rig.mute = False
        await rig.pass_by(SILENT.most_s + 700, step=10)
        assert (await rig.array(made.id)).state == "completed"
        (pool,) = (await rig.pools.list(OPERATOR)).pools
        assert pool.trouble == ""

    run(database_url, test)


def test_a_machine_that_never_spoke_is_forgiven_when_a_later_one_does(sqlite_url: str) -> None:
    """In a pool that works, one bad machine keeps nobody waiting."""

    async def test(rig: Rig) -> None:
        whole = w.DemandBody(cpu=2, memory="1GiB")
        await rig.pool(types=["small"], max_machines=2)
        rig.mute = True
        await rig.submit(demand=whole)
        await rig.pass_by(30)
        (dead,) = rig.cloud.running
        rig.dead.add(dead)
        rig.mute = False
        await rig.submit(demand=whole)
        await rig.pass_by(500)
        assert rig.cloud.running == [dead], "the other one has worked and gone back"
        while rig.cloud.running:
            await rig.pass_by(5)

        made = await rig.submit(demand=whole)
        await rig.pass_by(30)  # less than a first wait

        assert (await rig.job(made.id)).state == "completed"

    run(sqlite_url, test)


def test_who_has_spoken_forgives_as_long_as_silence_is_remembered(sqlite_url: str) -> None:
    """Not only while another machine of the type would be known by what it came with."""

    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], min_machines=1, max_machines=2)
        rig.mute = True
        await rig.submit(demand=w.DemandBody(cpu=2, memory="1GiB"))
        await rig.pass_by(5)
        rig.dead |= set(rig.cloud.running)
        rig.mute = False
        await rig.pass_by(1500)  # it is given back, and the next one speaks and stays
        assert len(rig.cloud.running) == 1
        assert not set(rig.cloud.running) & rig.dead
        now_ms = rig.clock.wall_ms()
        for hours in (0, 5, 7, 11, 13):
            later_ms = now_ms + hours * 3_600_000
            found = await rig.store.read(lambda c, at=later_ms: read_refusals(c, at))
            doubted = {name for each in found.values() for name in each.doubted}
            assert not doubted, f"after {hours} hours"

    run(sqlite_url, test)


def test_a_machine_that_is_lost_while_it_boots_is_not_held_against_its_type(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["small"], max_machines=1)
        rig.mute = True
        await rig.submit(demand=w.DemandBody(cpu=2, memory="1GiB"))
        await rig.pass_by(5)
        (token,) = rig.cloud.running
        rig.cloud.gone.add(rig.cloud.rented[token][1].cloud_id)
        await rig.pass_by(Patience().gone_s + 3 * Patience().sweep_s)
        assert len(rig.cloud.rented) == 2, "it was given up for another"
        found = await rig.store.read(lambda c: read_refusals(c, rig.clock.wall_ms()))
        assert not any(each.doubted for each in found.values())

    run(sqlite_url, test)


def test_a_type_refused_in_one_region_is_asked_for_in_the_next_that_the_pool_names(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(regions=["west", "north", "east"])
        refuse(rig.cloud, NoCapacity("model", "none of these"))
        made = await rig.submit(demand=ONE)

        await rig.settle(finish=False)

        asked = [(each.type.name, each.region) for each in rig.cloud.launches]
        assert asked == [("near", "west"), ("near", "east")]
        assert (await rig.job(made.id)).state == "running"
        await rig.settle()

    run(database_url, test, ModelCloud(types=IN_REGIONS))


def test_a_job_that_fits_in_no_region_of_its_pool_is_refused(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(regions=["east"])
        with pytest.raises(InvalidRequest, match="the nearest, 'near'"):
            await rig.submit(demand=w.DemandBody(cpu=4, memory="1GiB"))
        await rig.submit(demand=ONE)

    run(sqlite_url, test, ModelCloud(types=IN_REGIONS))


def test_a_type_refused_in_all_regions_is_passed_over_for_the_next(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(regions=["west", "east"])
        refuse(rig.cloud, *(NoCapacity("model", "none of these") for _ in range(2)))
        made = await rig.submit(demand=ONE)

        await rig.settle(finish=False)

        asked = [(each.type.name, each.region) for each in rig.cloud.launches]
        assert asked == [("near", "west"), ("near", "east"), ("far", "west")]
        assert (await rig.job(made.id)).state == "running"
        await rig.settle()

    run(sqlite_url, test, ModelCloud(types=IN_REGIONS))
