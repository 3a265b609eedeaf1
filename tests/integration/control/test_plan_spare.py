"""Plans for room to spare on a real plane: recommended, carried out, and counted afterwards."""

from roost.wire.bodies import DemandBody
from roost.wire.bodies.asking import CapacityQuestion
from roost.wire.plans import CreatePlan, PlanDetail
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run


async def fragmented(rig: Rig) -> None:
    """Put a large VM on `a`, and VMs on two others so that neither alone has room for it."""
    await rig.host("a", cpu=8, memory=8)
    await rig.running("big", cpu=6)
    await rig.plane.hosts.cordon("a", ADMIN)
    await rig.host("b", cpu=8, memory=8)
    for number in range(4):
        await rig.running(f"b-{number}", cpu=1)
    await rig.host("c", cpu=8, memory=8)
    await rig.plane.hosts.cordon("b", ADMIN)
    for number in range(3):
        await rig.running(f"c-{number}", cpu=1)
    for name in "ab":
        await rig.plane.hosts.uncordon(name, ADMIN)


async def more_that_survive(rig: Rig) -> int:
    demand = DemandBody(cpu=1, memory="1MiB")
    asked = CapacityQuestion(name="x", demand=demand, survive="host")
    return (await rig.plane.questions.capacity(asked, ADMIN)).count


async def goals(rig: Rig) -> dict[str, str]:
    found = await rig.plane.plans.recommend()
    return {each.goal: each.what for each in found.recommendations}


def test_a_fleet_that_cannot_lose_a_host_is_told_and_mended(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fragmented(rig)
        assert await more_that_survive(rig) == 0
        told = (await goals(rig))["spare"]
        assert told == "not every host could be lost and all be restarted; 1 moves would do"
        body = CreatePlan(goal="spare", apply=True)
        made = await rig.plane.plans.create(body, OPERATOR)
        assert isinstance(made, PlanDetail)
        assert [(each.source, each.target, each.why) for each in made.listed] == [
            ("c", "b", "so that a could be lost")
        ]
        await rig.pass_by(30)
        assert (await rig.plane.plans.get(made.id)).state == "done"
        assert await more_that_survive(rig) > 0
        assert "spare" not in await goals(rig)
        await rig.check()

    run(database_url, test)


def test_who_has_no_other_host_whatever_moves_is_named(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=8)
        await rig.running("big", cpu=6)
        await rig.host("b", cpu=4, memory=8)
        body = CreatePlan(goal="spare", spare=1)
        made = await rig.plane.plans.create(body, OPERATOR)
        assert isinstance(made, PlanDetail)
        assert made.moves == 0
        [blocked] = made.blocked
        assert blocked.name == "big"
        assert blocked.why.startswith("if a is lost, no other host fits: cpu on 1 hosts")
        assert "and 1 VMs have no other host" in (await goals(rig))["spare"]

    run(database_url, test)
