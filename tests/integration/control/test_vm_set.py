"""VMs that exist get other names, labels, priorities, hosts and sizes."""

import asyncio
import json

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, Forbidden, InvalidRequest, NoFit
from roost.ledger.schema.tables import events
from roost.ledger.writes.transaction import constraints_generation
from roost.parts.access import Principal
from roost.wire.agentlink import TaintInfo
from roost.wire.bodies import (
    AffinityBody,
    ConstraintsBody,
    LabelTermBody,
    ResizeVM,
    SetVM,
    TolerationBody,
)
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


def test_a_vm_gets_other_zones_racks_label_terms_and_tolerations(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", 4, 8)
        taint = TaintInfo(key="noisy", effect="no-place")
        b = {"zone": "z2", "rack": "r2", "labels": {"ssd": "yes"}, "taints": [taint]}
        await rig.host("b", 4, 8, **b)  # type: ignore[arg-type]
        gold = LabelTermBody(key="gold")
        asked = ConstraintsBody(zones=["z1"], racks=["r9"], labels=[gold])
        await rig.create("vm", constraints=asked, on_no_fit="queue")
        assert (await rig.get("vm")).host is None
        before = await rig.store.read(constraints_generation)
        steps = (
            SetVM(zones=["z2"]),
            SetVM(racks=["r2", "r3"]),
            SetVM(label_terms=[LabelTermBody(key="ssd", operator="in", values=["yes"])]),
            SetVM(tolerations=[TolerationBody(key="noisy")]),
        )
        for number, step in enumerate(steps, 1):
            assert (await rig.get("vm")).host is None
            for _ in range(2):  # as it is: nothing is written
                await rig.plane.vms.set("vm", None, step, OPERATOR)
                assert await rig.store.read(constraints_generation) == before + number
            await rig.settle()
            await rig.pass_by(10)
        vm = await rig.get("vm")
        assert (vm.host, vm.state) == ("b", "running")
        assert vm.constraints == {
            "zones": ["z2"], "racks": ["r2", "r3"], "tolerations": [{"key": "noisy"}],
            "labels": [{"key": "ssd", "operator": "in", "values": ["yes"]}],
        }  # fmt: skip
        # It stays where it is; a move goes by what is set.
        await rig.plane.vms.set("vm", None, SetVM(zones=["z1"], racks=[]), OPERATOR)
        await rig.settle()
        assert (await rig.get("vm")).host == "b"
        assert "racks" not in (await rig.get("vm")).constraints
        with pytest.raises(NoFit):
            await rig.plane.moves.migrate("vm", None, _move(), OPERATOR)
        free = SetVM(zones=[], label_terms=[], tolerations=[])
        await rig.plane.vms.set("vm", None, free, OPERATOR)
        assert (await rig.get("vm")).constraints == {}
        await rig.plane.moves.migrate("vm", None, _move(), OPERATOR)
        await rig.settle()
        assert (await rig.get("vm")).host == "a"
        query = select(events.c.note).where(events.c.kind == "vm.set").order_by(events.c.seq)
        notes = [row["note"] for row in await rig.rows(query)]
        assert notes[:2] == ["zones", "racks"]
        assert notes[-2:] == ["racks, zones", "label terms, tolerations, zones"]

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
            where = ("--zone", "z1,z2", "--rack", "r", "--tolerate", "noisy", "--host-label")
            bound = await type_("vm", "set", "big", *where, "large exists")
            told = 'label="large exists" tolerate=noisy zone=z1,z2 rack=r'
            assert told in " ".join(bound.output.split()), bound.output
            lifted = ("--no-zone", "--no-tolerate", "--no-host-label")
            left = (await type_("vm", "set", "big", *lifted)).output
            assert left.strip().endswith("rack=r"), left
            assert (
                "not both"
                in (await type_("vm", "set", "big", "--rack", "r", "--no-rack", rc=2)).output
            )
            await type_("vm", "set", "big", "--no-rack")
            shown = json.loads((await type_("vm", "show", "big", "-o", "json")).output)
            assert (shown["priority"], shown["constraints"]) == (3, {})
            assert "nothing" in (await type_("vm", "set", "big", rc=2)).output
            # A host without room says what it lacks; with --move another one is found.
            lacks = await type_("vm", "resize", "big", "--cpu", "6", rc=6)
            assert "h0" in lacks.output
            none = await type_("vm", "resize", "big", "--cpu", "60", "--move", rc=4)
            assert "no other host takes" in none.output

    run(sqlite_url, test)


def test_a_size_that_no_vm_can_have_is_refused_and_the_plane_goes_on(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8)
        await rig.running("runs")
        await rig.create("waits", cpu=99, on_no_fit="queue")
        for name in ("runs", "waits"):  # what waits has no claim that would refuse it
            for wanted in (ResizeVM(cpu=0), ResizeVM(memory=0), ResizeVM(disk="300TiB")):
                with pytest.raises(InvalidRequest):
                    await rig.plane.vms.resize(name, None, wanted, OPERATOR)
        assert rig.plane.readiness().status == "ready"
        assert (await rig.get("runs")).demand.cpu_milli == 1000
        await rig.plane.vms.resize("waits", None, ResizeVM(cpu=1), OPERATOR)
        await rig.settle(keep=True)
        assert (await rig.get("waits")).host == "h0"

    run(database_url, test)
