"""Recommendations of a real plane: where creates and moves go, what rules say, who may ask."""

import pytest
from msgspec.structs import replace

from roost.base.errors import InvalidRequest, NotFound
from roost.parts.access import Principal
from roost.wire.bodies import CreateVM, DemandBody, MigrateVM
from roost.wire.constraints import CreateConstraint
from roost.wire.recommendations import AskRecommendations, RecommendationsBody
from tests.integration.control.rig import ADMIN, GIB, OPERATOR, Rig, body_of, run

VIEWER = Principal("vera", "viewer")
MEMBER = Principal("mia", "member", "p1")
NEW = CreateVM(name="new", demand=DemandBody(cpu=1, memory=GIB))


async def fleet(rig: Rig) -> None:
    """Four hosts, the first two with slow disks, the last one a little busy."""
    for name, disk in (("a", "hdd"), ("b", "hdd"), ("c", "ssd"), ("d", "ssd")):
        await rig.host(name, cpu=8, memory=64, labels={"disk": disk})


async def rule(rig: Rig, name: str, expression: str, kind: str = "hard", **more: object) -> None:
    body = CreateConstraint(name=name, expression=expression, kind=kind, **more)  # type: ignore[arg-type]
    await rig.plane.constraints.create(body, ADMIN)


async def ask(rig: Rig, who: Principal = VIEWER, **asked: object) -> RecommendationsBody:
    return await rig.plane.questions.recommend(AskRecommendations(**asked), who)  # type: ignore[arg-type]


def test_a_new_vm_is_ranked_and_created_at_the_first(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rule(rig, "not-b", 'host.name != "b"')
        await rule(rig, "ssd", 'host.labels["disk"] == "ssd"', "soft", weight=0.5)
        found = await ask(rig, new=NEW, most=3)
        assert [each.host for each in found.recommendations] == ["c", "d", "a"]
        assert (found.hosts, found.fitting) == (4, 3)
        slow = found.recommendations[2]
        says = {each.rule: each for each in slow.rules}
        assert says["not-b"].holds
        assert not says["ssd"].holds
        assert says["ssd"].charge > 0
        assert "hdd" in str(says["ssd"].parts[0].values)
        assert slow.score == sum(term.value for term in slow.breakdown)
        assert (await rig.create("new")).host == found.recommendations[0].host

    run(database_url, test, strategy="least_loaded")


def test_a_vm_that_exists_stands_among_better_places_and_moves_to_the_first(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        vm = await rig.running("web", cpu=4)
        await rig.running("more", constraints={"hosts": [vm.host]}, cpu=3)
        found = await ask(rig, vm="web")
        here = next(each for each in found.recommendations if each.here)
        best = found.recommendations[0]
        assert (here.host, here.rank) == (vm.host, 4)
        assert best.gain == (here.score or 0) - (best.score or 0) > 0
        await rig.plane.moves.migrate("web", None, MigrateVM(), OPERATOR)
        await rig.settle()
        assert (await rig.get("web")).host == best.host

    run(database_url, test, strategy="least_loaded")


def test_a_host_that_a_newer_rule_refuses_comes_last_with_the_part_and_its_values(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        assert (await rig.running("web")).host == "a"
        await rule(rig, "ssd", 'host.labels["disk"] == "ssd"')
        found = await ask(rig, vm="web")
        assert [each.host for each in found.recommendations] == ["c", "d", "a"]
        here = found.recommendations[-1]
        assert (here.rank, here.score, here.reasons) == (None, None, ["rule"])
        assert [part.part for part in here.rules[0].parts] == ['host.labels["disk"] == "ssd"']
        assert found.recommendations[0].gain is None

    run(database_url, test)


def test_nothing_fits(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        found = await ask(rig, new=body_of("huge", cpu=100))
        assert found.recommendations == []
        assert found.rejection is not None
        assert found.rejection.code == "insufficient_resources"

    run(database_url, test)


def test_who_may_ask_and_for_what(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fleet(rig)
        await rig.create("web")
        for asked in ({}, {"vm": "web", "new": NEW}):
            with pytest.raises(InvalidRequest):
                await ask(rig, **asked)
        with pytest.raises(NotFound):
            await ask(rig, MEMBER, vm="web", project="default")
        with pytest.raises(NotFound):
            await ask(rig, MEMBER, new=replace(NEW, project="default"))
        assert (await ask(rig, MEMBER, new=NEW)).recommendations  # in the member's own project

    run(database_url, test)
