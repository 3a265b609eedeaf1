"""Plans end to end: drafted, applied, carried out, paused, cancelled, and planned anew."""

import pytest

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.base.timestamps import timestamp
from roost.control.moves.handover import note_downtime
from roost.control.vms.lookup import relock
from roost.model.series import Reading, Subject
from roost.parts.routes import Answered
from roost.wire.agentlink import ProgressInfo
from roost.wire.bodies import ConstraintsBody, DemandBody, MigrateVM, SetMaintenance
from roost.wire.plans import CreatePlan, ListPlans, PlanDetail
from tests.integration.control.rig import OPERATOR, Rig, run


async def uneven(rig: Rig, vms: int = 6) -> None:
    """Put all VMs on the first of three hosts."""
    await rig.host("a", cpu=8, memory=8)
    for number in range(vms):
        await rig.running(f"vm-{number}")
    await rig.host("b", cpu=8, memory=8)
    await rig.host("c", cpu=8, memory=8)


async def plan(rig: Rig, **given: object) -> PlanDetail:
    made = await rig.plane.plans.create(CreatePlan(**given), OPERATOR)  # type: ignore[arg-type]
    assert isinstance(made, PlanDetail)
    return made


async def hosts_of(rig: Rig, vms: int = 6) -> list[str | None]:
    return sorted([(await rig.get(f"vm-{n}")).host for n in range(vms)], key=str)


def test_a_balance_plan_evens_the_hosts_and_then_finds_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        made = await plan(rig, goal="balance", apply=True)
        assert (made.state, made.moves, made.done) == ("waiting", 4, 0)
        assert made.before.spread > made.after.spread
        await rig.pass_by(60)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.done, done.failed) == ("done", 4, 0)
        assert await hosts_of(rig) == ["a", "a", "b", "b", "c", "c"]
        assert done.actual is not None
        assert done.actual.spread == done.after.spread
        assert all(each.actual is not None for each in done.listed)
        again = await rig.plane.plans.create(CreatePlan(goal="balance", dry_run=True), OPERATOR)
        assert isinstance(again, Answered)
        assert again.body.moves == 0  # type: ignore[attr-defined]
        await rig.check()

    run(database_url, test)


def test_a_dry_run_keeps_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        found = await rig.plane.plans.create(CreatePlan(goal="balance", dry_run=True), OPERATOR)
        assert isinstance(found, Answered)
        assert isinstance(found.body, PlanDetail)
        assert (found.status, found.body.id, found.body.moves) == (200, "", 4)
        assert (await rig.plane.plans.list(ListPlans())).plans == []
        await rig.pass_by(10)
        assert await hosts_of(rig) == ["a"] * 6

    run(database_url, test)


def test_a_drain_names_its_blockers_before_it_starts(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=8)
        await rig.running("vm-0")
        await rig.running("vm-7", constraints=ConstraintsBody(hosts=["a"]))
        await rig.running("vm-8", labels={"roost.do-not-disturb": "always"})
        await rig.host("b", cpu=8, memory=8)
        made = await plan(rig, goal="drain", hosts=["a"])
        assert [(each.name, each.target) for each in made.listed] == [("vm-0", "b")]
        told = {each.name: each.why for each in made.blocked}
        assert told["vm-7"] == "no other host fits: not pinned on 1 hosts"
        assert told["vm-8"].startswith("do not disturb")
        assert made.eta_s > 0
        await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.pass_by(20)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.why) == ("done", "2 VMs could not move")
        assert (await rig.get("vm-0")).host == "b"

    run(database_url, test)


def test_a_plan_pauses_resumes_and_begins_nothing_meanwhile(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        made = await plan(rig, goal="balance", apply=True, at_once=1)
        await rig.pass_by(4)
        await rig.plane.plans.pause(made.id, OPERATOR)
        await rig.pass_by(30)
        paused = await rig.plane.plans.get(made.id)
        assert paused.state == "paused"
        assert 1 <= paused.done < 4
        assert not [each for each in paused.listed if each.state == "running"]
        with pytest.raises(Conflict, match="paused"):
            await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.plane.plans.resume(made.id, OPERATOR)
        await rig.pass_by(60)
        assert (await rig.plane.plans.get(made.id)).state == "done"

    run(database_url, test)


def test_a_cancelled_plan_takes_back_what_has_not_left(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        made = await plan(rig, goal="balance", apply=True)
        await rig.plane.run_singletons()
        await rig.hear()
        assert [r for r in (await rig.plane.plans.get(made.id)).listed if r.state == "running"]
        await rig.plane.plans.cancel(made.id, OPERATOR)
        await rig.pass_by(40)
        over = await rig.plane.plans.get(made.id)
        assert over.state == "cancelled"
        assert over.done == 0
        assert await hosts_of(rig) == ["a"] * 6
        assert await rig.claims() == {f"vm-{n}:run": "a" for n in range(6)}
        with pytest.raises(Conflict, match="cancelled"):
            await rig.plane.plans.resume(made.id, OPERATOR)
        await rig.plane.plans.cancel(made.id, OPERATOR)  # again is no mistake

    run(database_url, test)


def test_a_destination_that_dies_is_planned_around(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        made = await plan(rig, goal="drain", hosts=["a"], apply=True, at_once=1)
        targets = {each.target for each in made.listed}
        await rig.pass_by(4)
        await rig.pass_by(300, silent=("b",))
        stuck = await rig.plane.plans.get(made.id)
        # What b may have is b's until it comes back; all others have left by then.
        assert {each.target for each in stuck.listed if each.state == "running"} <= {"b"}
        assert sum(each.state == "running" for each in stuck.listed) <= 1
        await rig.pass_by(120)
        done = await rig.plane.plans.get(made.id)
        assert "b" in targets
        assert (done.state, done.replans >= 1) == ("done", True)
        assert set(await hosts_of(rig)) <= {"b", "c"}
        assert "c" in await hosts_of(rig)

    run(database_url, test)


def test_vms_deleted_resized_or_moved_meanwhile_do_not_stop_a_plan(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        made = await plan(rig, goal="balance", at_once=1)
        first, second, *_ = made.listed
        await rig.plane.vms.delete(first.vm, None, OPERATOR)
        await rig.settle()
        other = "b" if second.target == "c" else "c"
        await rig.move(second.name, other)
        await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.pass_by(80)
        done = await rig.plane.plans.get(made.id)
        assert done.state == "done"
        states = {each.vm: each.why for each in done.listed if each.state == "dropped"}
        assert states[first.vm] == "the VM is gone"
        assert states[second.vm].startswith("it is on another host")
        assert done.replans == 1

    run(database_url, test)


def test_a_move_that_somebody_else_has_made_ends_the_wait_for_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig, vms=1)
        made = await plan(rig, goal="move", vms=["vm-0"], to="b", apply=True)
        # It is on its way when its wave begins, and there when its turn comes.
        await rig.plane.moves.migrate("vm-0", None, MigrateVM(host="b"), OPERATOR)
        await rig.plane.run_singletons()
        assert (await rig.plane.plans.get(made.id)).wave == 1
        await rig.pass_by(20)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.listed[0].why) == ("done", "it is there already")
        assert await rig.state("vm-0") == ("running", "b")

    run(database_url, test)


def test_a_vm_that_is_not_to_be_disturbed_by_now_stays(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=8)
        minute = rig.clock.wall_ms() // 60_000
        soon, later = ((minute + more) % 1440 for more in (30, 90))
        period = f"{soon // 60:02}:{soon % 60:02}-{later // 60:02}:{later % 60:02}"
        await rig.running("vm-0", labels={"roost.do-not-disturb": period})
        await rig.running("vm-1")
        await rig.host("b", cpu=8, memory=8)
        made = await plan(rig, goal="drain", hosts=["a"])
        assert (made.moves, made.blocked) == (2, [])
        await rig.pass_by(2400)
        await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.pass_by(60)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.why) == ("done", "1 VMs could not move")
        assert [(each.name, each.guard) for each in done.blocked] == [("vm-0", "do_not_disturb")]
        assert (await rig.state("vm-0"))[1] == "a"
        assert (await rig.state("vm-1"))[1] == "b"

    run(database_url, test)


def test_a_plan_waits_for_its_start_and_ends_with_its_window(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        now = rig.clock.wall_ms()
        made = await plan(
            rig, goal="balance", apply=True, at_once=1,
            start=timestamp(now + 60_000), end=timestamp(now + 68_000),
        )  # fmt: skip
        await rig.pass_by(50)
        assert (await rig.plane.plans.get(made.id)).state == "waiting"
        await rig.pass_by(60)
        over = await rig.plane.plans.get(made.id)
        assert over.state == "failed"
        assert over.why.startswith("its window is over")
        assert 1 <= over.done < 4

    run(database_url, test)


def test_what_cannot_be_planned_is_refused_with_its_values(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        with pytest.raises(InvalidRequest, match="needs 'hosts'"):
            await plan(rig, goal="drain")
        with pytest.raises(InvalidRequest, match="no host 'nowhere'"):
            await plan(rig, goal="drain", hosts=["nowhere"])
        with pytest.raises(InvalidRequest, match="takes no 'hosts'"):
            await plan(rig, goal="balance", hosts=["a"])
        with pytest.raises(InvalidRequest, match="takes no 'spare'"):
            await plan(rig, goal="balance", spare=1)
        with pytest.raises(InvalidRequest, match="in the past"):
            await plan(rig, goal="balance", start="1970-01-01T00:00:01Z")
        with pytest.raises(InvalidRequest, match="not after the start"):
            await plan(
                rig, goal="balance", start="2150-01-02T00:00:00Z", end="2150-01-01T00:00:00Z"
            )
        with pytest.raises(NotFound, match="no VM 'ghost'"):
            await plan(rig, goal="move", vms=["ghost"])
        with pytest.raises(NotFound, match="no plan"):
            await rig.plane.plans.get("plan-x")

    run(database_url, test)


def test_room_is_made_for_a_large_vm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=4, memory=8)
        await rig.running("vm-0", cpu=2)
        await rig.host("b", cpu=4, memory=8)
        await rig.running("vm-1", cpu=2, constraints=ConstraintsBody(not_hosts=["a"]))
        size = DemandBody(cpu=4, memory="1GiB")
        made = await plan(rig, goal="defragment", demand=size, apply=True)
        assert [(each.name, each.source, each.target) for each in made.listed] == [
            ("vm-0", "a", "b")
        ]
        await rig.pass_by(20)
        assert (await rig.create("large", cpu=4)).host == "a"

    run(database_url, test)


def test_a_named_vm_moves_to_a_named_host_at_a_time(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig, vms=1)
        made = await plan(rig, goal="move", vms=["vm-0"], to="c", apply=True)
        await rig.pass_by(20)
        assert (await rig.plane.plans.get(made.id)).state == "done"
        assert await rig.state("vm-0") == ("running", "c")

    run(database_url, test)


def test_another_process_goes_on_where_one_died(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        made = await plan(rig, goal="balance", apply=True, at_once=1)
        for _ in range(12):
            await rig.pass_by(4)
            await rig.restart()
            for agent in rig.agents.values():
                agent.connect(rig.plane)
            await rig.settle(check=False)
        await rig.pass_by(120)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.done) == ("done", 4)

    run(database_url, test)


def test_recommendations_say_what_is_wrong_and_what_a_plan_would_do(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        found = {each.goal: each for each in (await rig.plane.plans.recommend()).recommendations}
        assert found["balance"].moves == 4
        assert found["balance"].after.spread < found["balance"].before.spread
        assert "repair" not in found
        await plan(rig, goal="balance", apply=True)
        await rig.pass_by(60)
        goals = [each.goal for each in (await rig.plane.plans.recommend()).recommendations]
        assert "balance" not in goals

    run(database_url, test)


def test_only_an_empty_host_goes_into_maintenance(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig, vms=1)
        on, off = SetMaintenance(on=True), SetMaintenance(on=False)
        with pytest.raises(Conflict, match="still has 1 VM 'vm-0'"):
            await rig.plane.hosts.set_maintenance("a", on, OPERATOR)
        await plan(rig, goal="drain", hosts=["a"], apply=True)
        await rig.pass_by(20)
        assert (await rig.plane.hosts.set_maintenance("a", on, OPERATOR)).admin == "maintenance"
        assert (await rig.create("new")).host != "a"
        assert (await rig.plane.hosts.set_maintenance("a", off, OPERATOR)).admin == "open"
        await rig.settle()

    run(database_url, test)


def test_a_plan_that_is_over_learns_what_the_old_host_tells_of_its_last_move(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig, 1)
        made = await plan(rig, goal="move", vms=["vm-0"], to="b", apply=True)
        await rig.pass_by(30)
        done = await rig.plane.plans.get(made.id)
        assert done.state == "done"
        assert done.listed[0].actual is not None
        assert done.listed[0].actual.stand_still_s is None
        vm = done.listed[0].vm
        progress = ProgressInfo(sent_bytes=77 * 2**20, passes=3, downtime_ms=41)
        await rig.store.write(lambda tx: note_downtime(tx, relock(tx, vm), progress))
        await rig.pass_by(5)
        actual = (await rig.plane.plans.get(made.id)).listed[0].actual
        assert actual is not None
        assert (actual.stand_still_s, actual.sent_bytes, actual.rounds) == (0.041, 77 * 2**20, 3)
        await rig.check()

    run(database_url, test)


def test_vms_to_be_moved_anywhere_move_once_however_often_it_is_planned_anew(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await three_vms(rig)
        names = ["vm-0", "vm-1", "vm-2"]
        made = await plan(rig, goal="move", vms=names, apply=True, at_once=1)
        assert [each.target for each in made.listed] == ["b", "c", "c"]
        await rig.pass_by(4)
        await rig.pass_by(300, silent=("c",))
        await rig.pass_by(120)
        over = await rig.plane.plans.get(made.id)
        assert (over.state, over.replans >= 1) == ("done", True)
        done = [each.name for each in over.listed if each.state == "done"]
        assert sorted(done) == sorted(set(done))
        assert set(done) >= {"vm-0", "vm-2"}
        assert (await rig.get("vm-0")).host == "b"
        assert over.why == ("" if "vm-1" in done else "1 VMs could not move")

    run(database_url, test)


def test_a_plan_to_move_vms_anywhere_is_done_when_others_have_moved_the_rest(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await three_vms(rig)
        made = await plan(rig, goal="move", vms=["vm-0", "vm-1"], at_once=1)
        await rig.move("vm-1", "d")
        await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.pass_by(60)
        over = await rig.plane.plans.get(made.id)
        assert (over.state, over.why, over.replans) == ("done", "", 1)
        assert [each.name for each in over.listed if each.state == "done"] == ["vm-0"]
        assert await hosts_of(rig, 3) == ["a", "b", "d"]

    run(sqlite_url, test)


def test_a_plan_to_move_vms_anywhere_plans_nothing_anew_when_none_is_left(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await three_vms(rig)
        made = await plan(rig, goal="move", vms=["vm-0"])
        await rig.move("vm-0", "d")
        await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.pass_by(60)
        over = await rig.plane.plans.get(made.id)
        # Nobody is left to move: that is not everybody, nor the one that has moved.
        assert (over.state, over.moves, over.done, over.replans) == ("done", 0, 0, 1)
        assert await hosts_of(rig, 3) == ["a", "a", "d"]

    run(sqlite_url, test)


@pytest.mark.parametrize("hot", [(), ("vm-0",), ("vm-0", "vm-1")], ids=len)
def test_a_move_that_costs_more_than_it_gains_is_vetoed_by_what_is_measured(
    sqlite_url: str, hot: tuple[str, ...]
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=8)
        for name in ("vm-0", "vm-1"):
            made = await rig.running(name, until=timestamp(rig.clock.wall_ms() + 60_000))
            now, read = rig.clock.wall_ms(), {"dirty_bytes_per_s": 1e9 if name in hot else 1e3}
            await rig.series.put([Reading(Subject("vm", made.id), now - 1, read)], now)
        await rig.host("b", cpu=8, memory=8)
        found = await plan(rig, goal="balance")
        # In the minute that is left to them one gains 7 s of work, and a hot one loses 9 s.
        quiet = [name for name in ("vm-0", "vm-1") if name not in hot]
        assert [each.name for each in found.listed] == quiet[:1]
        assert {(each.name, each.guard) for each in found.vetoed} == {(vm, "cost") for vm in hot}
        drained = await plan(rig, goal="drain", hosts=["a"])
        assert (drained.moves, drained.vetoed) == (2, [])

    run(sqlite_url, test)


async def three_vms(rig: Rig) -> None:
    """Put three VMs on the first of four hosts; the second has room for one."""
    await rig.host("a", cpu=8, memory=8)
    for number in range(3):
        await rig.running(f"vm-{number}")
    await rig.host("b", cpu=1, memory=8)
    await rig.host("c", cpu=8, memory=8)
    await rig.host("d", cpu=8, memory=8)
