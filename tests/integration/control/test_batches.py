"""All-or-none batches on a real plane: found, refused with their conflict, nobody waits."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from roost.base.errors import (
    Conflict,
    FleetUnavailable,
    NoFit,
    PlacementContended,
    SearchBusy,
)
from roost.control.create import committing, searches
from roost.control.create.together import SLICE
from roost.parts.access import Principal
from roost.placement.effort import Effort
from roost.placement.group import GroupAnswer, place_exactly
from roost.wire.bodies import (
    BatchBody,
    BatchConflictBody,
    CreateProject,
    CreateVM,
    CreateVMs,
    DryRunBatch,
)
from roost.wire.constraints import CreateConstraint
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, body_of, digest_of, run, run_two

VIEWER = Principal("vera", "viewer")
#: Placed in turn the small one takes the only host of the large one.
STUCK = [body_of("small", cpu=3), body_of("large", cpu=4)]


async def two_hosts(rig: Rig) -> None:
    await rig.host("a", cpu=4, memory=64, labels={"disk": "hdd"})
    await rig.host("b", cpu=3, memory=64, labels={"disk": "ssd"})


async def create(rig: Rig, vms: list[CreateVM]) -> BatchBody:
    body = CreateVMs(vms=vms, atomic=True)
    return (await rig.plane.admit.create_many(body, OPERATOR, None, digest_of(body))).batch


async def dry_run(rig: Rig, vms: list[CreateVM]) -> Any:
    return await rig.plane.questions.dry_run_many(DryRunBatch(vms=vms, atomic=True), VIEWER)


class Meanwhile:
    """Holds the exact search up until the test lets it go on, as a long search would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.searches = 0
        self.efforts: list[Effort] = []

        def held(*asked: Any, **how: Any) -> GroupAnswer:
            self.searches += 1
            self.efforts.append(asked[-1])
            self.begun.set()
            assert self.go_on.wait(60)
            return place_exactly(*asked, **how)

        monkeypatch.setattr(committing, "place_exactly", held)

    async def until_begun(self) -> None:
        await asyncio.to_thread(self.begun.wait, 60)


def test_what_placing_in_turn_misses_is_found_and_told(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        would = await dry_run(rig, STUCK)
        assert [each.host for each in would.answers] == ["b", "a"]
        made = await create(rig, STUCK)
        assert [each.host for each in made.results] == ["b", "a"]
        assert made.together is not None
        assert made.together == would.together
        assert made.together.how == "exact search"
        await rig.settle()

    run(database_url, test)


def test_a_refusal_names_the_rule_that_is_in_the_way_and_creates_nothing(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        rule = CreateConstraint(name="ssd", expression='host.labels["disk"] == "ssd"')
        await rig.plane.constraints.create(rule, ADMIN)
        vms = [body_of("x", cpu=2), body_of("y", cpu=2)]
        with pytest.raises(NoFit) as caught:
            await create(rig, vms)
        together = caught.value.details["together"]
        assert together["proven"]
        [found] = together["conflict"]["restrictions"]
        assert (found["kind"], found["name"], found["count"]) == ("rule", "ssd", 2)
        assert together["conflict"]["checked"]
        assert "all would fit without rule 'ssd'" in caught.value.message
        would = await dry_run(rig, vms)
        assert would.together.conflict.restrictions[0].vms == ["x", "y"]
        assert await rig.claims() == {}

    run(database_url, test)


def test_vms_of_one_name_in_two_projects_are_told_apart_in_a_conflict(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        # Each has a pin of its own in the way: to lift one of them is not enough.
        vms = [
            body_of("web", constraints={"hosts": ["none"]}),
            body_of("web", project="shop", constraints={"hosts": ["gone"]}),
        ]
        for conflict in (await refused(rig, vms), (await dry_run(rig, vms)).together.conflict):
            assert conflict.checked
            found = {(each.name, *each.vms) for each in conflict.restrictions}
            assert found == {("pinned to none", "default/web"), ("pinned to gone", "shop/web")}

    run(database_url, test)


async def refused(rig: Rig, vms: list[CreateVM]) -> BatchConflictBody:
    with pytest.raises(NoFit) as caught:
        await create(rig, vms)
    return msgspec.convert(caught.value.details["together"]["conflict"], BatchConflictBody)


def test_a_dry_run_of_a_batch_knows_vms_by_their_names(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        body = CreateConstraint(name="r", expression='vm.name != "web" || host.name == "b"')
        await rig.plane.constraints.create(body, ADMIN)
        for atomic in (True, False):
            asked = DryRunBatch(vms=[body_of("web"), body_of("web")], atomic=atomic)
            would = await rig.plane.questions.dry_run_many(asked, VIEWER)
            found = [(each.vm, each.host) for each in would.answers]
            assert found == [("web", "b"), ("web", "b")]

    run(sqlite_url, test)


def test_who_waits_too_long_for_a_search_is_told(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        held = Meanwhile(monkeypatch)
        first = asyncio.create_task(create(rig, STUCK))
        await held.until_begun()
        assert rig.plane._searches.wait_s == 60
        rig.plane._searches.wait_s = 2.0
        waits = asyncio.create_task(create(rig, STUCK))
        while not rig.plane._searches._waiting:
            await asyncio.sleep(0)
        monkeypatch.setattr(searches, "MOST_WAITING", 1)
        with pytest.raises(SearchBusy, match="1 batches wait already"):
            await create(rig, STUCK)
        await rig.clock.settle()
        rig.clock.move(3)
        with pytest.raises(SearchBusy, match="have taken 2 s, and this one had no turn"):
            await waits
        held.go_on.set()
        assert [each.host for each in (await first).results] == ["b", "a"]
        assert not rig.plane._searches._waiting

    run(sqlite_url, test)


def test_others_create_while_a_search_is_under_way(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await rig.host("c", cpu=1, memory=64)
        held = Meanwhile(monkeypatch)
        batch = asyncio.create_task(create(rig, STUCK))
        await held.until_begun()
        other = await asyncio.wait_for(rig.create("other", constraints={"hosts": ["c"]}), 30)
        assert other.host == "c"
        assert not batch.done()
        held.go_on.set()
        assert [each.host for each in (await batch).results] == ["b", "a"]
        assert held.searches == 1
        await rig.settle()

    run(database_url, test)


def test_what_does_not_fit_any_more_is_searched_for_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        held = Meanwhile(monkeypatch)
        batch = asyncio.create_task(create(rig, STUCK))
        await held.until_begun()
        await rig.create("thief", constraints={"hosts": ["b"]})
        held.go_on.set()
        with pytest.raises(NoFit):
            await batch
        assert held.searches == 2
        assert len(await rig.claims()) == 1

    run(database_url, test)


def test_a_search_ends_when_its_asker_is_gone_and_the_next_has_its_turn(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        held = Meanwhile(monkeypatch)
        gone = asyncio.create_task(create(rig, STUCK))
        await held.until_begun()
        last = asyncio.create_task(create(rig, STUCK))
        await asyncio.sleep(0.1)
        assert held.searches == 1
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert held.efforts[0].stopped
        held.go_on.set()
        assert [each.host for each in (await last).results] == ["b", "a"]

    run(database_url, test)


def test_a_search_ends_when_the_plane_stops(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        held = Meanwhile(monkeypatch)
        batch = asyncio.create_task(create(rig, STUCK))
        await held.until_begun()
        await rig.plane.stop()
        assert held.efforts[0].stopped
        held.go_on.set()
        with pytest.raises(FleetUnavailable):
            await batch
        assert await rig.claims() == {}

    run(database_url, test)


def test_a_plane_that_lags_is_told_by_the_ledger(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await two_hosts(first)
        await second.plane.follower.catch_up()
        held = Meanwhile(monkeypatch)
        batch = asyncio.create_task(create(first, STUCK))
        await held.until_begun()
        await second.create("thief", constraints={"hosts": ["b"]})
        held.go_on.set()
        with pytest.raises((NoFit, PlacementContended)):
            await batch
        assert len(await first.claims()) == 1

    run_two(postgres_url, test)


# In slices


class Served:
    """Counts how often others are served, and lets something happen at one of these times."""

    def __init__(self, rig: Rig, patch: pytest.MonkeyPatch, then: Any = None, at: int = 1) -> None:
        self.times = 0

        async def rest() -> None:
            self.times += 1
            await asyncio.sleep(0)
            if then is not None and self.times == at:
                await then()

        patch.setattr(rig.plane.admit._committer._together, "_rest", rest)


def charged(rig: Rig) -> list[list[int]]:
    return rig.plane.roster.fleet.hosts.arrays.committed.tolist()


def test_a_large_batch_is_placed_in_slices_and_others_are_served(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.host("a", cpu=64, memory=128)
        await rig.host("b", cpu=64, memory=128)
        served = Served(rig, monkeypatch)
        answer = await create(rig, [body_of(f"v{n}") for n in range(90)])
        assert (answer.created, served.times) == (90, 89 // SLICE)
        refused, before = Served(rig, monkeypatch), charged(rig)
        with pytest.raises(NoFit):
            await create(rig, [body_of(f"w{n}") for n in range(50)])
        assert refused.times
        assert charged(rig) == before  # all of it was given back
        await rig.check()

    run(database_url, scenario)


def test_what_happens_between_two_slices_counts(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.host("a", cpu=64, memory=128)
        await rig.host("b", cpu=64, memory=128)

        async def cordon() -> None:
            await rig.plane.hosts.cordon("a", ADMIN)

        Served(rig, monkeypatch, cordon)
        answer = await create(rig, [body_of(f"v{n}") for n in range(60)])
        assert answer.created == 60
        where = {each.host for each in answer.results}
        assert where == {"b"}  # those on a were placed anew: it had taken them no more
        await rig.check()

    run(database_url, scenario)


def test_a_group_that_goes_between_two_slices_ends_the_batch(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.host("a", cpu=64, memory=128)
        first = {"name": "web", "rule": "affinity", "scope": "host", "hard": False}
        await create(rig, [body_of("first", groups=[first])])
        await rig.plane.vms.delete("first", None, ADMIN)
        await rig.settle()
        before = charged(rig)

        async def gone() -> None:
            await rig.plane.groups.delete("web", "default", ADMIN)

        Served(rig, monkeypatch, gone)
        with pytest.raises(Conflict, match="web"):
            await create(rig, [body_of(f"v{n}", groups=["web"]) for n in range(60)])
        assert charged(rig) == before
        await rig.check()

    run(database_url, scenario)
