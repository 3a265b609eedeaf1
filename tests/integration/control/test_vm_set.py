"""VMs that exist get other names, labels, priorities, hosts and sizes."""

import asyncio
import json

import pytest

from roost.base.errors import Conflict, Forbidden, InvalidRequest
from roost.ledger.transaction import constraints_generation
from roost.parts.access import Principal
from roost.wire.bodies import AffinityBody, SetVM
from tests.integration.control.rig import OPERATOR, Rig, run, run_two
from tests.integration.control.typed import typing

LABELS = ("--label", "tier=gold", "--label", "team-")


def test_a_vm_gets_another_name_labels_priority_and_hosts(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8)
        await rig.host("h1", 4, 8)
        await rig.running("old", labels={"tier": "silver"})
        wanted = SetVM(
            name="new", labels={"tier": "gold"}, priority=7, hosts=["h1"], restart="elsewhere"
        )
        await rig.plane.vms.set("old", None, wanted, OPERATOR)
        await rig.settle()
        vm = await rig.get("new")
        assert (vm.labels, vm.priority, vm.state) == ({"tier": "gold"}, 7, "running")
        assert (vm.host, vm.constraints["hosts"], vm.restart) == ("h0", ["h1"], "elsewhere")
        before = vm.generation
        await rig.plane.vms.set("new", None, wanted, OPERATOR)
        assert (await rig.get("new")).generation == before  # as it is: nothing is written
        await rig.plane.moves.migrate("new", None, _move(), OPERATOR)
        await rig.settle()
        assert (await rig.get("new")).host == "h1"  # the pin counts for a move
        await rig.restart()
        assert (await rig.get("new")).priority == 7
        await rig.plane.vms.set("new", None, SetVM(hosts=[], labels={}), OPERATOR)
        await rig.settle()
        assert (await rig.get("new")).constraints == {}

    run(database_url, test)


def _move() -> object:
    from roost.wire.bodies import MigrateVM

    return MigrateVM()


def test_what_cannot_be_set_is_refused_and_nothing_is_changed(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 8)
        await rig.running("a", labels={"app": "web"})
        await rig.running("b")
        rule = AffinityBody(selector={"app": "web"}, rule="affinity")
        await rig.create("c", labels={"app": "web"}, affinity=[rule])

        async def refused(kind: type[Exception], match: str, **given: object) -> None:
            with pytest.raises(kind, match=match):
                await rig.plane.vms.set("a", None, SetVM(**given), OPERATOR)  # type: ignore[arg-type]

        await refused(Conflict, "already", name="b")
        await refused(InvalidRequest, "no host 'h9'", hosts=["h9"])
        await refused(InvalidRequest, "nothing")
        await refused(Conflict, "leave the affinity rule", labels={})
        with pytest.raises(Conflict, match="join the affinity rule"):
            await rig.plane.vms.set("b", None, SetVM(labels={"app": "web"}), OPERATOR)
        member = Principal("mia", "member", "default")
        with pytest.raises(Forbidden, match="raise"):
            await rig.plane.vms.set("a", None, SetVM(priority=5), member)
        both = SetVM(name="z", hosts=["h9"])
        with pytest.raises(InvalidRequest):
            await rig.plane.vms.set("a", None, both, OPERATOR)
        assert (await rig.get("a")).generation == 1
        await rig.plane.vms.set("a", None, SetVM(labels={"app": "web", "x": "1"}), OPERATOR)

    run(sqlite_url, test)


def test_a_name_moves_no_generation_of_constraints_and_a_label_does(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 8, 8)
        await rig.running("a")
        before = await rig.store.read(constraints_generation)
        await rig.plane.vms.set("a", None, SetVM(name="z"), OPERATOR)
        assert await rig.store.read(constraints_generation) == before
        await rig.plane.vms.set("z", None, SetVM(labels={"x": "1"}), OPERATOR)
        assert await rig.store.read(constraints_generation) == before + 1

    run(sqlite_url, test)


def test_of_two_processes_that_give_one_name_the_second_hears_that_it_is_taken(
    postgres_url: str,
) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await first.host("h0", 8, 8)
        for name in "abcdef":
            await first.running(name)
        await second.hear()
        for number, (one, other) in enumerate(("ab", "cd", "ef")):
            named = SetVM(name=f"new-{number}")
            told = await asyncio.gather(
                first.plane.vms.set(one, None, named, OPERATOR),
                second.plane.vms.set(other, None, named, OPERATOR),
                return_exceptions=True,
            )
            failed = [each for each in told if isinstance(each, BaseException)]
            assert [type(each) for each in failed] == [Conflict]

    run_two(postgres_url, test)


def test_vm_set_and_resize_as_they_are_typed(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8)
        await rig.host("h1", 8, 8, labels={"large": "yes"})
        await rig.running("a", cpu=3, labels={"team": "x"}, constraints={"hosts": ["h0"]})
        await rig.running("b", labels={"team": "x"})
        async with typing(rig, monkeypatch) as type_:
            await type_("group", "create", "web", "anti-affinity")
            both = await type_("vm", "set", "-l", "team=x", *LABELS)
            assert "a: restarts here; labels tier=gold" in both.output
            joined = await type_("vm", "set", "b", "--group", "web")
            assert "groups web" in joined.output
            assert "groups" not in (await type_("vm", "set", "b", "--group", "web-")).output
            pinned = await type_("vm", "set", "a", "--pin", "h1", "--name", "big")
            assert "stays on h0 until it moves: roost vm migrate big" in pinned.output
            gone = await type_("vm", "set", "big", "nosuch", "--priority", "3", rc=3)
            assert "1 of 2 done, 1 failed" in gone.output
            assert "h1" in (await type_("vm", "set", "big", "--unpin", "--exclude", "h1")).output
            await type_("vm", "set", "big", "--no-exclude")
            shown = json.loads((await type_("vm", "show", "big", "-o", "json")).output)
            assert (shown["priority"], shown["constraints"]) == (3, {})
            assert "nothing" in (await type_("vm", "set", "big", rc=2)).output
            # A host without room says what it lacks; with --move another one is found.
            lacks = await type_("vm", "resize", "big", "--cpu", "6", rc=6)
            assert "h0" in lacks.output
            none = await type_("vm", "resize", "big", "--cpu", "60", "--move", rc=4)
            assert "no other host takes" in none.output

    run(sqlite_url, test)
