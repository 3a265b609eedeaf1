"""Flavors: the amounts of VMs by name, on both databases and as an operator types them."""

import asyncio
import json

import msgspec
import pytest

from roost.base.errors import Conflict, Forbidden, InvalidRequest, NotFound
from roost.wire.bodies import (
    CapacityQuestion,
    CreateVM,
    DemandBody,
    DeviceBody,
    DryRun,
    DryRunBatch,
    PlacementBody,
    ResizeVM,
)
from roost.wire.flavors import ChangeFlavor, CreateFlavor
from roost.wire.priorities import CreatePriorityClass
from roost.wire.recommendations import AskRecommendations
from roost.wire.reservations import CreateReservation
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, digest_of, run, run_two
from tests.integration.control.typed import typing

M2 = CreateFlavor(name="m2", demand=DemandBody(cpu=2, memory="4GiB", disk="10GiB"))


async def create(rig: Rig, name: str, flavor: str) -> object:
    body = CreateVM(name=name, flavor=flavor)
    return (await rig.plane.admit.create(body, OPERATOR, None, digest_of(body))).vm


def test_a_vm_has_the_amounts_of_its_flavor_and_keeps_them(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 16, 64)
        await rig.plane.flavors.create(M2, ADMIN)
        await rig.plane.follower.catch_up()
        await create(rig, "web", "m2")
        await rig.settle()
        larger = ChangeFlavor(demand=DemandBody(cpu=4, memory="8GiB"))
        changed = await rig.plane.flavors.change("m2", larger, ADMIN)
        assert (changed.cpu_milli, changed.disk_bytes) == (4000, 0)
        await rig.plane.follower.catch_up()
        vm = await rig.get("web")
        assert (vm.demand.cpu_milli, vm.demand.disk_bytes, vm.flavor) == (2000, 10 << 30, "m2")
        await create(rig, "next", "m2")
        assert (await rig.get("next")).demand.cpu_milli == 4000
        await rig.plane.vms.resize("web", None, ResizeVM(cpu=1), OPERATOR)
        assert (await rig.get("web")).flavor == ""
        await rig.plane.flavors.delete("m2", ADMIN)
        await rig.restart()
        assert (await rig.get("next")).flavor == "m2"
        assert rig.plane.roster.flavors.rows == {}

    run(database_url, test)


def test_what_is_wrong_with_a_flavor_is_said(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 16, 64)
        await rig.plane.flavors.create(M2, ADMIN)
        await rig.plane.follower.catch_up()
        with pytest.raises(Conflict, match="already"):
            await rig.plane.flavors.create(M2, ADMIN)
        with pytest.raises(Forbidden):
            await rig.plane.flavors.delete("m2", OPERATOR)
        with pytest.raises(NotFound) as unknown:
            await rig.plane.flavors.get("m22")
        assert unknown.value.hint == "Maybe 'm2'?"
        with pytest.raises(InvalidRequest, match="no flavor 'm3'"):
            await create(rig, "web", "m3")
        with pytest.raises(InvalidRequest, match="neither"):
            await rig.plane.questions.dry_run(DryRun(name="web"), OPERATOR)
        both = DryRun(name="web", flavor="m2", demand=M2.demand)
        with pytest.raises(InvalidRequest, match="one of them"):
            await rig.plane.questions.dry_run(both, OPERATOR)
        negative = CreateFlavor(name="x", demand=DemandBody(cpu="-1", memory="1GiB"))
        with pytest.raises(InvalidRequest):
            await rig.plane.flavors.create(negative, ADMIN)

    run(sqlite_url, test)


def test_two_planes_make_one_flavor_and_both_know_it(postgres_url: str) -> None:
    async def test(one: Rig, other: Rig) -> None:
        await one.host("h0", 16, 64)
        tries = [rig.plane.flavors.create(M2, ADMIN) for rig in (one, other)]
        made = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(each, Conflict) for each in made) == 1, made
        # Neither has heard of it: a create asks the ledger before it says that there is none.
        await create(one, "a", "m2")
        await create(other, "b", "m2")

    run_two(postgres_url, test)


def test_what_another_process_has_just_made_can_be_asked_about(postgres_url: str) -> None:
    async def test(one: Rig, other: Rig) -> None:
        await one.host("h0", 16, 64)
        await one.host("h1", 16, 64)
        await other.plane.follower.catch_up()
        ask = other.plane.questions

        async def make(flavor: str) -> None:
            await one.plane.flavors.create(msgspec.structs.replace(M2, name=flavor), ADMIN)

        await make("a")
        assert isinstance(await ask.dry_run(DryRun(name="x", flavor="a"), OPERATOR), PlacementBody)
        await make("b")
        many = DryRunBatch(vms=[CreateVM(name="x", flavor="b")])
        assert len((await ask.dry_run_many(many, OPERATOR)).answers) == 1
        await make("c")
        better = AskRecommendations(new=CreateVM(name="x", flavor="c"))
        assert (await ask.recommend(better, OPERATOR)).hosts
        await make("d")
        assert (await ask.capacity(CapacityQuestion(name="x", flavor="d"), OPERATOR)).count
        await one.plane.priorities.create(CreatePriorityClass(name="high", value=9), ADMIN)
        dry = DryRun(name="x", flavor="a", priority_class="high")
        assert isinstance(await ask.dry_run(dry, OPERATOR), PlacementBody)
        await make("e")
        await one.host("h2", 16, 64)
        kept = CreateReservation(name="r", purpose="p", flavor="e", hosts=["h2"])
        assert (await other.plane.reservations.create(kept, OPERATOR)).placed

    run_two(postgres_url, test)


def test_flavors_as_they_are_typed(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 16, 64)
        async with typing(rig, monkeypatch) as type_:
            made = await type_("flavor", "create", "m2", "--cpu", "2", "--memory", "4GiB")
            assert "4 GiB" in made.output
            await type_("flavor", "set", "m2", "--disk", "20GiB", "--description", "web servers")
            shown = json.loads((await type_("flavor", "show", "m2", "-o", "json")).output)
            assert (shown["cpu_milli"], shown["disk_bytes"]) == (2000, 20 << 30)
            assert "web servers" in (await type_("flavor", "list")).output
            assert (await type_("flavor", "list", "-o", "name")).output == "m2\n"
            assert "h0" in (await type_("place", "--flavor", "m2")).output
            assert "5 more" in (await type_("capacity", "--flavor", "m2")).output
            assert "h0" in (await type_("vm", "recommend", "--flavor", "m2")).output
            await type_("vm", "create", "web", "--flavor", "m2")
            assert "flavor m2" in (await type_("vm", "show", "web")).output
            both = await type_("vm", "create", "x", "--flavor", "m2", "--cpu", "1", rc=2)
            assert "--cpu" in both.output
            kept = ("reservation", "create", "r", "--flavor", "m2", "--project", "default")
            assert "4 GiB" in (await type_(*kept)).output
            unknown = await type_("vm", "create", "x", "--flavor", "m22", rc=3)
            assert "Maybe 'm2'?" in unknown.output
            await type_("flavor", "delete", "m2")
            assert "no flavors" in (await type_("flavor", "list")).output

    run(sqlite_url, test)


def test_a_flavor_with_gpus_is_for_hosts_that_have_them(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("plain", 16, 64)
        gpu = DemandBody(cpu=1, memory="1GiB", gpu=DeviceBody(count=1))
        await rig.plane.flavors.create(CreateFlavor(name="g1", demand=gpu), ADMIN)
        await rig.plane.follower.catch_up()
        told = await rig.plane.questions.dry_run(DryRun(name="x", flavor="g1"), OPERATOR)
        assert "devices" in str(told)

    run(sqlite_url, test)
