"""Violations and the cheapest single move that repairs each, or what is in the way of one."""

from roost.parts.access import Principal
from roost.wire.bodies import MigrateVM
from roost.wire.constraints import CheckConstraints, CreateConstraint, ViolationsBody
from tests.integration.control.rig import ADMIN, GIB, OPERATOR, Rig, run

VIEWER = Principal("vera", "viewer")


async def rule(rig: Rig, expression: str, **more: object) -> None:
    body = CreateConstraint(name="rule", expression=expression, force=True, **more)  # type: ignore[arg-type]
    await rig.plane.constraints.create(body, ADMIN)


async def check(rig: Rig) -> ViolationsBody:
    return await rig.plane.constraints.check(CheckConstraints(), VIEWER)


def test_the_vm_moves_where_a_move_would_take_it_and_all_is_well(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name, disk in (("a", "hdd"), ("b", "hdd"), ("c", "ssd")):
            await rig.host(name, cpu=4, memory=16, labels={"disk": disk})
        assert (await rig.running("db", memory=2 * GIB)).host == "a"
        await rule(rig, 'host.labels["disk"] == "ssd"')
        found = await check(rig)
        [one] = found.violations
        assert one.repair is not None
        assert (one.repair.name, one.repair.to, found.repaired) == ("db", "c", 1)
        assert one.repair.memory_bytes == 2 * GIB
        await rig.plane.moves.migrate("db", None, MigrateVM(host=one.repair.to), OPERATOR)
        await rig.settle()
        assert (await check(rig)).total == 0

    run(database_url, test)


def test_a_smaller_vm_leaves_where_that_is_cheaper(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("a", "b"):
            await rig.host(name, cpu=8, memory=16)
        await rig.running("large", memory=8 * GIB, labels={"tier": "db"})
        await rig.running("small", memory=6 * GIB)
        await rig.running("tiny", memory=GIB)  # cheapest, and not enough
        await rule(rig, 'host.free.memory >= quantity("12Gi")', selector={"tier": "db"})
        [one] = (await check(rig)).violations
        assert one.repair is not None
        assert (one.name, one.repair.name, one.repair.to) == ("large", "small", "b")
        await rig.plane.moves.migrate("small", None, MigrateVM(host="b"), OPERATOR)
        await rig.settle()
        assert (await check(rig)).total == 0

    run(database_url, test)


def test_what_is_in_the_way_is_told_where_no_move_helps(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=16, labels={"disk": "hdd"})
        await rig.host("b", cpu=8, memory=4, labels={"disk": "ssd"})
        await rig.running("db", memory=8 * GIB)
        await rule(rig, 'host.labels["disk"] == "ssd"')
        [one] = (await check(rig)).violations
        assert one.repair is None
        assert one.in_the_way is not None
        assert one.in_the_way.nearest_miss is not None
        assert one.in_the_way.nearest_miss.host == "b"

    run(database_url, test)
