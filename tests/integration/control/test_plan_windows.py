"""Windows of plans: given, in maintenance times, at a foreseen trough; kept while a plan runs."""

import math

import pytest

from roost.base.errors import InvalidRequest
from roost.base.timestamps import read_timestamp, timestamp
from roost.base.units import GIB
from roost.model.series import DAY_MS, Reading, Subject
from roost.parts.routes import Answered
from roost.wire.bodies import SetHost
from roost.wire.plans import CreatePlan, GivenWindow, PlanDetail
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run

STEP_MS = 300_000
HOUR_MS = 3_600_000


async def uneven(rig: Rig, vms: int = 2) -> None:
    """Put all VMs on the first of two hosts."""
    await rig.host("a", cpu=8, memory=8)
    for number in range(vms):
        await rig.running(f"vm-{number}")
    await rig.host("b", cpu=8, memory=8)


async def plan(rig: Rig, **given: object) -> PlanDetail:
    body = CreatePlan(goal="drain", hosts=["a"], **given)  # type: ignore[arg-type]
    made = await rig.plane.plans.create(body, OPERATOR)
    found = made.body if isinstance(made, Answered) else made
    assert isinstance(found, PlanDetail)
    return found


async def busy_by_day(rig: Rig, calm_ms: int) -> None:
    """Let both hosts have been busy for a week, but for two hours of each day."""
    now = rig.clock.wall_ms()
    for name in ("a", "b"):
        readings = []
        for at in range(now - 7 * DAY_MS - now % STEP_MS, now, STEP_MS):
            calm = (at - calm_ms) % DAY_MS < 2 * HOUR_MS
            cpu = (500.0 if calm else 5000.0) * (1 + 0.02 * math.sin(at / 1e6))
            readings.append(
                Reading(Subject("host", name), at, {"cpu_milli": cpu, "memory_bytes": GIB / 4})
            )
        await rig.series.put(readings, now, old=True)


def spans(made: PlanDetail) -> list[tuple[int, int]]:
    return [(read_timestamp(e.start, "start"), read_timestamp(e.end, "end")) for e in made.windows]


def given(now: int, *minutes: tuple[float, float]) -> list[GivenWindow]:
    return [
        GivenWindow(start=timestamp(now + int(60_000 * a)), end=timestamp(now + int(60_000 * b)))
        for a, b in minutes
    ]


def test_a_plan_runs_at_the_foreseen_trough(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        now = rig.clock.wall_ms()
        calm = now - now % STEP_MS + 3 * STEP_MS
        await busy_by_day(rig, calm)
        made = await plan(rig, window="trough", apply=True)
        ((start, end), *_) = spans(made)
        assert calm <= start < end <= calm + 2 * HOUR_MS
        assert made.windows[0].quality > 0.9
        assert "foreseen" in made.windows[0].reason
        assert (made.start, made.end) == (made.windows[0].start, made.windows[-1].end)
        await rig.pass_by(60)
        assert (await rig.plane.plans.get(made.id)).state == "waiting"
        assert (await rig.get("vm-0")).host == "a"
        await rig.pass_by((start - rig.clock.wall_ms()) / 1000 + 60)
        assert (await rig.plane.plans.get(made.id)).state == "done"
        assert (await rig.get("vm-0")).host == "b"

    run(database_url, test, dated=True)


def test_nothing_begins_between_two_windows_and_the_rest_does_in_the_second(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig, vms=4)
        now = rig.clock.wall_ms()
        windows = given(now, (1, 1.4), (5, 9))
        made = await plan(rig, windows=windows, apply=True, at_once=1)
        assert [each.reason for each in made.windows] == [
            "as asked; nothing is foreseen of its hosts then"
        ] * 2
        await rig.pass_by(180)
        between = await rig.plane.plans.get(made.id)
        assert between.state == "waiting"
        assert between.why.startswith("its next window begins at")
        assert 1 <= between.done < 4
        assert between.moving == 0
        await rig.pass_by(300)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.done) == ("done", 4)
        begun = [read_timestamp(e.begun_at or "", "begun") for e in done.listed]
        for at in begun:
            assert any(first <= at < last for first, last in spans(made)), timestamp(at)

    run(database_url, test, dated=True)


def test_a_move_that_would_not_end_in_its_window_is_not_begun(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig, vms=1)
        now = rig.clock.wall_ms()
        took = (await plan(rig, dry_run=True)).listed[0].predicted.total_s
        made = await plan(rig, windows=given(now, (1, 1 + 1.2 * took / 60)))
        # It is applied when too little of its only window is left.
        await rig.pass_by(60 + 0.5 * took)
        await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.pass_by(60)
        over = await rig.plane.plans.get(made.id)
        assert (over.state, over.done) == ("failed", 0)
        assert over.why.startswith("its window is over")
        assert (await rig.get("vm-0")).host == "a"

    run(database_url, test)


def test_maintenance_times_of_hosts_are_kept(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        hour = rig.clock.wall_ms() // HOUR_MS % 24
        with pytest.raises(InvalidRequest, match="no host of the plan says when"):
            await plan(rig, window="maintenance")
        for name, first, last in (("a", 2, 6), ("b", 4, 8)):
            times = f"{(hour + first) % 24:02}:00-{(hour + last) % 24:02}:00"
            labels = {"roost.maintenance-times": times}
            await rig.plane.hosts.set(name, SetHost(labels=labels), ADMIN)
        made = await plan(rig, window="maintenance")
        both = [(a // HOUR_MS % 24, b // HOUR_MS % 24) for a, b in spans(made)]
        assert set(both) == {((hour + 4) % 24, (hour + 6) % 24)}
        assert len(both) >= 6
        await rig.plane.hosts.set(
            "a", SetHost(labels={"roost.maintenance-times": "at night"}), ADMIN
        )
        with pytest.raises(InvalidRequest, match="'at night', no times of day"):
            await plan(rig, window="maintenance")

    run(database_url, test, dated=True)


def test_the_calendar_is_looked_through_for_a_week_however_far_the_end(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        labels = {"roost.maintenance-times": "02:00-06:00"}
        await rig.plane.hosts.set("a", SetHost(labels=labels), ADMIN)
        found = spans(await plan(rig, window="maintenance", end="2199-12-31T23:59:59Z"))
        assert found == spans(await plan(rig, window="maintenance"))
        assert max(last for _, last in found) <= rig.clock.wall_ms() + 7 * DAY_MS

    run(database_url, test, dated=True)


def test_windows_that_make_no_sense_are_refused_with_their_values(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        now = rig.clock.wall_ms() + 10 * DAY_MS
        for windows, why in (
            (given(0, (1, 2)), "is in the past"),
            (given(now, (10, 5)), "ends before it begins"),
            (given(now, (1, 10), (9, 20)), "overlap"),
            (given(now, (1, 1.05)), "the longest window is 3 s"),
        ):
            with pytest.raises(InvalidRequest, match=why):
                await plan(rig, windows=windows)
        with pytest.raises(InvalidRequest, match="nothing is foreseen"):
            await plan(rig, window="trough")
        with pytest.raises(InvalidRequest, match="a plan has windows, or"):
            await plan(rig, windows=given(now, (1, 9)), window="trough")

    run(database_url, test, dated=True)


def test_vms_of_an_affinity_group_move_side_by_side_and_their_cost_is_told(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=8)
        near = [{"name": "app", "rule": "affinity", "scope": "zone", "hard": False}]
        for name, groups in (("vm-0", near), ("vm-1", []), ("vm-2", []), ("vm-3", near)):
            await rig.running(name, groups=groups)
        await rig.host("b", cpu=8, memory=8)
        made = await plan(rig, dry_run=True)
        waves = {each.name: each.wave for each in made.listed}
        assert waves["vm-0"] == waves["vm-3"]
        (told,) = made.together
        assert (told.group, sorted(told.vms)) == ("default/app", ["vm-0", "vm-3"])
        assert told.waves == [waves["vm-0"]]
        own = [each for each in made.listed if each.name in told.vms]
        assert told.sent_bytes == sum(each.predicted.sent_bytes or 0 for each in own)

    run(database_url, test)
