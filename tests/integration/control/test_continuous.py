"""Continuous mode: off, recommended, applied; calm for a week of chasing; and never two at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roost.control.plans.continuous import Continuous
from roost.control.plans.continuouslimits import AUTHOR, ContinuousLimits
from roost.control.plans.planning import Planning
from roost.control.plans.record import Asked
from roost.model.outlook import Predicted
from roost.planner.drafting import Draft
from roost.wire.plans import ListPlans, PlanBody
from tests.integration.control.rig import OPERATOR, Rig, gib, run, run_two
from tests.integration.control.test_plans import hosts_of, plan, uneven

HOUR_S = 3600
EVERY = ContinuousLimits(mode="apply", goals=("balance",), every_s=20.0)


def part_of(rig: Rig) -> Continuous:
    return next(part for part in rig.plane.parts if isinstance(part, Continuous))


async def own_plans(rig: Rig) -> list[PlanBody]:
    return (await rig.plane.plans.list(ListPlans(created_by=AUTHOR))).plans


async def moves_made(rig: Rig) -> list[tuple[str, str]]:
    """Return which VM moved where, of all plans that nobody asked for."""
    found = [await rig.plane.plans.get(each.id) for each in await own_plans(rig)]
    return [(m.name, m.target) for each in found for m in each.listed if m.state == "done"]


def test_it_is_off_unless_asked_for(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        await rig.pass_by(60)
        assert await own_plans(rig) == []
        assert (await part_of(rig).get()).mode == "off"

    run(database_url, test)


def test_it_recommends_by_one_draft_that_moves_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        await rig.pass_by(100)
        [draft] = await own_plans(rig)  # not a new one at every look
        assert (draft.state, draft.moves) == ("planned", 4)
        assert await hosts_of(rig) == ["a"] * 6

    limits = ContinuousLimits(mode="recommend", goals=("balance",), every_s=20.0)
    run(database_url, test, continuous=limits)


def test_it_applies_what_two_looks_want_and_then_is_calm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        await rig.pass_by(16)
        assert await own_plans(rig) == []  # one look is not believed
        await rig.pass_by(110)
        assert await hosts_of(rig) == ["a", "a", "b", "b", "c", "c"]
        [only] = await own_plans(rig)
        assert (only.state, only.done) == ("done", 4)
        assert (await part_of(rig).get()).said == "no goal wants anything moved"

    run(database_url, test, continuous=EVERY)


def test_it_waits_while_an_operator_s_plan_is_open(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        other = await plan(rig, goal="drain", hosts=["a"], apply=True)
        await rig.plane.plans.pause(other.id, OPERATOR)
        await rig.pass_by(60)
        assert await own_plans(rig) == []
        assert other.id in (await part_of(rig).get()).said

    run(database_url, test, continuous=EVERY)


@pytest.mark.parametrize("limits", [{"most": 2}, {"day": 2}, {"vm_day": 1}])
def test_what_is_planned_anew_keeps_the_limits_of_the_whole(
    sqlite_url: str, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[set[str]] = []
    draft = Planning.draft

    async def noting(self: Planning, asked: Asked, **given: Any) -> Draft:
        if "failed" in given:  # it is planned anew
            held.append(set(given.get("held") or ()))
        return await draft(self, asked, **given)

    monkeypatch.setattr(Planning, "draft", noting)

    async def test(rig: Rig) -> None:
        await uneven(rig)
        while not (opened := await own_plans(rig)) or not opened[0].moving:
            await rig.pass_by(2)
        plan_id = opened[0].id
        await rig.plane.plans.pause(plan_id, OPERATOR)
        await rig.pass_by(10)
        moves = (await rig.plane.plans.get(plan_id)).listed
        first, *_ = (each for each in moves if each.state == "done")
        left = next(each for each in moves if each.state == "planned")
        await rig.move(left.name, "b" if left.target == "c" else "c")  # the fleet has drifted
        await rig.plane.plans.resume(plan_id, OPERATOR)
        await rig.pass_by(40)
        anew = await rig.plane.plans.get(plan_id)
        assert (anew.state, anew.replans) == ("done", 1)
        assert 1 <= anew.done <= limits.get("most", limits.get("day", 9))
        assert ({first.vm} <= held[0]) == ("vm_day" in limits)

    strict = replace(EVERY, at_once=1, every_s=10.0, **limits)  # type: ignore[arg-type]
    run(sqlite_url, test, continuous=strict, dated=True)


async def chased(rig: Rig, hours: int) -> int:
    """Let the host that has the hot VM be foreseen as full, wherever it goes, for so many hours."""
    await rig.host("a", cpu=8, memory=8)
    for number in range(3):
        await rig.running(f"vm-{number}")
    for name in ("b", "c", "d"):
        await rig.host(name, cpu=8, memory=8)
    for _ in range(hours):
        here = (await rig.get("vm-0")).host
        fleet = rig.plane.roster.fleet
        fleet.set_predicted(
            {
                name: Predicted(7800 if name == here else 500, gib(1))
                for name in ("a", "b", "c", "d")
            }
        )
        rig.clock.move(HOUR_S)
        await rig.pass_by(12)
    return sum(name == "vm-0" for name, _ in await moves_made(rig))


def test_a_hot_vm_that_is_chased_for_a_week_moves_a_bounded_number_of_times(
    tmp_path: Path,
) -> None:
    async def test(rig: Rig) -> None:
        times = await chased(rig, 7 * 24)
        # Twice a day at most, where load alone would have moved it at every second look.
        assert 1 <= times <= 7 * EVERY.vm_day

    run(f"sqlite:///{tmp_path}/roost.db", test, continuous=EVERY, dated=True)


def test_without_limits_the_same_week_is_a_chase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.control.plans.gathering.resting", lambda _moves, _now: "")

    async def test(rig: Rig) -> None:
        assert await chased(rig, 24) > 2 * EVERY.vm_day

    loose = ContinuousLimits(mode="apply", goals=("balance",), every_s=20.0, vm_day=1000)
    run(f"sqlite:///{tmp_path}/roost.db", test, continuous=loose, dated=True)


def test_two_processes_never_plan_against_each_other(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        await uneven(first)
        for _ in range(60):
            first.clock.move(2)
            for agent in first.agents.values():
                agent.heartbeat()
                first.step(agent)
            await first.hear()
            await second.hear()
            await first.plane.run_singletons()
            await second.plane.run_singletons()
            opened = [p for p in await own_plans(first) if p.state in ("waiting", "running")]
            assert len(opened) <= 1
        made = await moves_made(first)
        assert len(made) == 4
        assert len({name for name, _ in made}) == 4  # none of them twice
        holders = [part_of(each).singleton.token is not None for each in (first, second)]
        assert sorted(holders) == [False, True]

    run_two(postgres_url, test, continuous=EVERY)
