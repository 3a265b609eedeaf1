"""What is asked is what is created: capacity, rankings, batches and dry runs under reservations.

In drawn worlds with reservations of now and of later, VMs that end and VMs that own room, each
question is asked first, and then the VMs are created one by one until the first refusal.
"""

import threading
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from roost.base.errors import Conflict, NoFit, PlacementContended
from roost.control.create import committing, living, questions
from roost.control.create.drawing import Found
from roost.control.create.living import NO_ROOM, Room
from roost.control.memory.roster import Roster
from roost.control.memory.rostercopy import Places
from roost.ledger.claims.holdsums import Living
from roost.model.kept import NOTHING_KEPT
from roost.wire.bodies import (
    CapacityQuestion,
    CreateProject,
    CreateVM,
    CreateVMs,
    DemandBody,
    DryRunBatch,
    PlacementBody,
)
from roost.wire.recommendations import AskRecommendations
from tests.integration.control.rig import ADMIN, Rig, body_of, digest_of, gib, run
from tests.integration.control.test_reservations import at, reserve

HOSTS = ("h1", "h2", "h3")
#: Who asks: everybody, an owner, one that ends before what comes later, an owner that ends.
ASKERS: dict[str, dict[str, Any]] = {
    "anybody": {},
    "an owner": {"project": "shop"},
    "one that ends": {"until": 3.0},
    "an owner that ends": {"project": "shop", "until": 3.0},
}


async def world(rig: Rig, chance: Random) -> None:
    """Some hosts with VMs on them, and reservations of now, of later and for a while."""
    for name in HOSTS:
        await rig.host(name, cpu=chance.randint(2, 8), memory=64)
    for project in ("shop", "other"):
        await rig.plane.projects.create(CreateProject(name=project), ADMIN)
    for number in range(chance.randint(2, 4)):
        times = chance.choice(({}, {}, {"start": 5.0}, {"end": 2.0}, {"start": 1.0, "end": 4.0}))
        given: dict[str, Any] = {key: at(rig, minutes) for key, minutes in times.items()}
        given["project"] = chance.choice(("shop", "shop", "other"))
        if chance.random() < 0.5:
            given["hosts"] = [chance.choice(HOSTS)]
        try:
            await reserve(rig, f"r{number}", cores=chance.randint(1, 4), **given)
        except Conflict:
            continue  # it cannot be honoured
    for number in range(chance.randint(0, 5)):
        until = at(rig, chance.choice((2.0, 4.0, 6.0))) if chance.random() < 0.4 else None
        project = chance.choice(("default", "shop", "other"))
        cpu = chance.randint(1, 2)
        try:
            await rig.create(f"old{number}", cpu=cpu, project=project, until=until)
        except NoFit:
            continue
    await rig.settle()


def asker(rig: Rig, name: str, cpu: int) -> dict[str, Any]:
    """Return what a VM of an asker is created with."""
    given = dict(ASKERS[name])
    if "until" in given:
        given["until"] = at(rig, given["until"])
    return {"cpu": cpu, **given}


async def create_all(rig: Rig, given: dict[str, Any]) -> list[str]:
    """Create VMs until one is refused; return the hosts of those before it."""
    hosts: list[str] = []
    while len(hosts) < 40:
        try:
            made = await rig.create(f"new{len(hosts)}", **given)
        except NoFit:
            return hosts
        assert made.host is not None
        hosts.append(made.host)
    return hosts


async def ask_capacity(rig: Rig, given: dict[str, Any]) -> int:
    rest = dict(given)
    demand = DemandBody(cpu=rest.pop("cpu"), memory="1GiB")
    body = CapacityQuestion(name="how-many", demand=demand, **rest)
    return (await rig.plane.questions.capacity(body, ADMIN)).count


async def ask_first(rig: Rig, given: dict[str, Any]) -> str | None:
    """Return the first host of the ranking."""
    body = AskRecommendations(new=body_of("first", **given))
    found = (await rig.plane.questions.recommend(body, ADMIN)).recommendations
    return found[0].host if found else None


async def ask_batch(rig: Rig, given: dict[str, Any], count: int) -> list[str]:
    """Return the hosts of a batch that is tried."""
    body = DryRunBatch(vms=[body_of(f"dry{n}", **given) for n in range(count)])
    found = (await rig.plane.questions.dry_run_many(body, ADMIN)).answers
    return [answer.host for answer in found if isinstance(answer, PlacementBody)]


async def create_together(rig: Rig, given: dict[str, Any], count: int) -> bool:
    """Create so many VMs, all or none; say whether they were."""
    vms: list[CreateVM] = [body_of(f"all{n}", **given) for n in range(count)]
    body = CreateVMs(vms=vms, atomic=True)
    try:
        await rig.plane.admit.create_many(body, ADMIN, None, digest_of(body))
    except NoFit:
        return False
    await rig.settle()
    for vm in vms:
        await rig.plane.vms.delete(vm.name, vm.project, ADMIN)
    await rig.settle()
    return True


def two_of_a_kind(rig: Rig) -> bool:
    """Say whether a host has units of two reservations of the project."""
    holdings = rig.plane.roster.holdings
    for host in holdings.held_hosts():
        owners = {hold.owner for hold in holdings.holds[host].values()}
        shops = [
            row for row in holdings.reservations.values()
            if row.holder in owners and row.owner == "shop"
        ]  # fmt: skip
        if len(shops) > 1:
            return True
    return False


async def promised_is_kept(rig: Rig, chance: Random, name: str) -> int:
    """Ask and create; return how many there were."""
    await world(rig, chance)
    given = asker(rig, name, chance.randint(1, 3))
    count = await ask_capacity(rig, given)
    first, batch = await ask_first(rig, given), await ask_batch(rig, given, count + 1)
    before = rig.plane.roster.fleet.hosts.held.copy()
    if count:
        assert await create_together(rig, given, count), "all of them do not fit together"
        assert (rig.plane.roster.fleet.hosts.held == before).all()
    many = two_of_a_kind(rig)
    if not many:
        assert not await create_together(rig, given, count + 1), "more fit than was said"
    hosts = await create_all(rig, given)
    await rig.settle()
    assert len(hosts) >= count, f"{count} were promised, and {len(hosts)} fit"
    assert many or len(hosts) == count, f"{count} were said, and {len(hosts)} fit"
    assert first == (hosts[0] if hosts else None)
    assert batch[: len(hosts)] == hosts[: len(batch)]
    return count


@pytest.mark.parametrize("name", ASKERS)
def test_what_is_said_is_what_is_created(sqlite_url: str, name: str) -> None:
    counted = []
    for seed in range(8):
        url = sqlite_url.replace(".db", f"-{seed}.db")

        async def test(rig: Rig) -> None:
            counted.append(await promised_is_kept(rig, Random(f"{name} {seed}"), name))  # noqa: B023

        run(url, test, dated=True)
    assert sum(counted) > 8


def test_reserved_room_is_promised_to_its_owner_alone(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8, memory=64)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        await reserve(rig, cores=6)
        assert await ask_capacity(rig, asker(rig, "anybody", 1)) == 2
        assert await ask_capacity(rig, asker(rig, "an owner", 1)) == 8
        await reserve(rig, "later", cores=2, start=at(rig, 5), project="shop")
        assert await ask_capacity(rig, asker(rig, "anybody", 1)) == 0
        assert await ask_capacity(rig, asker(rig, "one that ends", 1)) == 2

    run(database_url, test, dated=True)


def test_an_owner_is_ranked_its_own_room_first(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("h1", "h2"):
            await rig.host(name, cpu=4, memory=64)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        await reserve(rig, cores=2, hosts=["h2"])
        assert await ask_first(rig, asker(rig, "anybody", 1)) == "h1"
        assert await ask_first(rig, asker(rig, "an owner", 1)) == "h2"
        await rig.running("own", project="shop", cpu=2, memory=gib(2))  # all of it
        body = AskRecommendations(vm="own", project="shop")
        found = (await rig.plane.questions.recommend(body, ADMIN)).recommendations
        assert [(each.host, each.here, each.rank) for each in found] == [
            ("h2", True, 1), ("h1", False, 2),
        ]  # fmt: skip

    run(database_url, test, dated=True)


def test_a_batch_with_an_end_is_placed_beside_the_event_loop_on_a_copy(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(places: Places, *given: Any, **more: Any) -> list[Found]:
        seen.append((places, threading.current_thread()))
        return living.place_turns(places, *given, **more)

    seen: list[tuple[Places, threading.Thread]] = []
    monkeypatch.setattr(questions, "place_turns", noted)

    async def test(rig: Rig) -> None:
        await world(rig, Random(7))
        vms = [body_of("a", until=at(rig, 3.0)), body_of("b"), body_of("c")]
        for atomic in (False, True):
            await rig.plane.questions.dry_run_many(DryRunBatch(vms=vms, atomic=atomic), ADMIN)
            places, thread = seen.pop()
            assert thread is not threading.main_thread()
            assert places.fleet is not rig.plane.roster.fleet
            assert not seen

    run(sqlite_url, test, dated=True)


def test_a_copy_of_holdings_says_the_same_and_changes_alone(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await world(rig, Random(7))
        await rig.create("short", until=at(rig, 3.0))
        holdings = rig.plane.roster.holdings
        copy = holdings.copy()
        assert vars(copy) == vars(holdings)
        before = deepcopy(vars(holdings))
        assert holdings.rows
        for key in list(copy.rows):
            copy._drop(key)
        for key in list(copy.reservations):
            copy._forget(key)
        for number in (1, 2, 3):
            copy.charge(
                f"c{number}", number, Living((1, 1, 1, 1), rig.clock.wall_ms() + 1000, None)
            )
            copy.held(number, rig.clock.wall_ms())
        assert vars(holdings) == before

    run(sqlite_url, test, dated=True)


# Planted mistakes


def _nobody_owns(roster: Roster, *given: Any) -> Room:
    """See what everybody sees."""
    return NO_ROOM


def _all_is_open(roster: Roster, *given: Any) -> Room:
    """See reserved room as open to all."""
    return Room({entry.fleet_row: NOTHING_KEPT for entry in roster.hosts.values()}, {})


@pytest.mark.parametrize("broken", [_nobody_owns, _all_is_open])
def test_a_broken_build_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    for module in (living, questions, committing):
        monkeypatch.setattr(module, "room_of", broken)
    with pytest.raises((AssertionError, PlacementContended)):
        test_what_is_said_is_what_is_created(sqlite_url, "an owner")
