"""Draw on a reservation: by its owner's VMs alone, whichever way they come to a host."""

from typing import Any

import pytest

from roost.base.errors import NoFit, NotFound
from roost.ledger.upkeep.checks import examine
from roost.model.kept import NOTHING_KEPT
from roost.wire.bodies import CreateProject, DemandBody, DryRun, MigrateVM
from roost.wire.priorities import CreatePriorityClass
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_reservations import at, reserve, shop


def test_a_name_that_is_used_again_is_another_reservation(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, cpu=8)
        await rig.plane.projects.create(CreateProject(name="other"), ADMIN)
        await reserve(rig, cores=4)
        await rig.running("own", project="shop", cpu=4)
        await rig.plane.reservations.delete("r", ADMIN)
        again = await reserve(rig, cores=4, project="other")
        assert (again.drawn, [unit.host for unit in again.placed]) == (0, ["h1"])
        with pytest.raises(NoFit):
            await rig.create("stranger", cpu=4)
        await rig.create("others-own", project="other", cpu=4)
        assert (await rig.plane.reservations.get("r", ADMIN)).drawn == 1

    run(database_url, test, dated=True)


def test_what_is_reserved_while_a_create_is_on_its_way_is_held_in_memory(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        roster, claim = rig.plane.roster, rig.store.claim
        entry = roster.entry("h1")
        assert entry is not None

        async def late(*args: Any, **given: Any) -> Any:
            monkeypatch.setattr(rig.store, "claim", claim)
            await reserve(rig, cores=2)
            await rig.plane.follower.catch_up()
            return await claim(*args, **given)

        monkeypatch.setattr(rig.store, "claim", late)
        await rig.create("short", cpu=1, until=at(rig, 5))
        await rig.plane.follower.catch_up()
        held = roster.held_on(entry.number)
        assert held[0] == 2000
        assert roster.fleet.kept.get(entry.fleet_row, NOTHING_KEPT) == held
        with pytest.raises(NoFit):
            await rig.create("too-large", cpu=3)

    run(database_url, test, dated=True)


@pytest.mark.parametrize("named", [None, "r"])
def test_a_vm_that_waited_draws_on_what_its_user_reserved(
    database_url: str, named: str | None
) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await rig.running("full", cpu=4, until=at(rig, 1))
        await reserve(rig, cores=4, user=OPERATOR.name, start=at(rig, 1.5))
        more = {} if named is None else {"reservation": named, "until": at(rig, 60)}
        await rig.create("mine", cpu=4, on_no_fit="queue", **more)
        await rig.pass_by(200)
        await rig.settle()
        assert (await rig.get("mine")).host == "h1"
        assert (await rig.plane.reservations.get("r", ADMIN)).drawn == 1

    run(database_url, test, dated=True)


def test_a_vm_that_is_moved_draws_on_what_its_user_reserved(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await rig.running("mine", cpu=4)
        await rig.host("h2", cpu=4, memory=64)
        await reserve(rig, cores=4, user=OPERATOR.name)
        await rig.plane.moves.migrate("mine", None, MigrateVM(), OPERATOR)
        await rig.settle()
        assert (await rig.get("mine")).host == "h2"
        assert (await rig.plane.reservations.get("r", ADMIN)).drawn == 1

    run(database_url, test, dated=True)


def test_an_owner_that_would_displace_others_has_its_own_room(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await rig.plane.priorities.create(CreatePriorityClass(name="top", value=9), ADMIN)
        await reserve(rig, cores=4)
        asked = {"cpu": 2, "priority_class": "top", "on_no_fit": "preempt"}
        assert (await rig.create("own", project="shop", **asked)).host == "h1"
        assert (await rig.create("own-2", project="shop", **asked)).host == "h1"
        with pytest.raises(NoFit):  # for a VM that draws on a reservation nobody makes room
            await rig.create("own-3", project="shop", **asked)
        with pytest.raises(NoFit):
            await rig.create("stranger", **asked)

    run(database_url, test, dated=True)


def test_a_reservation_that_is_unknown_or_anothers_is_not_found(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=1)
        said = []
        for name in ("r", "s"):
            with pytest.raises(NotFound) as found:
                await rig.create("v", cpu=1, reservation=name)
            said.append(found.value.message.replace(repr(name), "NAME"))
            with pytest.raises(NotFound):
                await rig.plane.questions.dry_run(
                    DryRun(name="v", demand=DemandBody(cpu=1, memory="1GiB"), reservation=name),
                    ADMIN,
                )
        assert said[0] == said[1]
        assert (await rig.create("v", cpu=1, project="shop", reservation="r")).host == "h1"

    run(database_url, test, dated=True)


def test_a_vm_whose_host_is_late_to_destroy_it_is_no_mistake(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await rig.running("short", cpu=4, until=at(rig, 1))
        await reserve(rig, cores=4, start=at(rig, 2))
        rig.clock.move(150)
        await rig.plane.projects.create(CreateProject(name="later"), ADMIN)
        assert (await rig.store.read(examine)).findings == []

    run(database_url, test, dated=True)
