"""What plans must not do however large or unlucky they are: hang, wait for ever, grow for ever."""

import asyncio
import threading
from typing import Any

import pytest
from sqlalchemy import inspect

from roost.base.errors import NotFound
from roost.control.plans import planning as planning_module
from roost.control.plans.executing import PlanRunner
from roost.control.timers import Timers
from roost.control.topology import topology as topology_module
from roost.fleet.vms import VMTable
from roost.ledger.schema.tables import plan_moves
from roost.ledger.writes.transaction import Tx
from roost.planner.board import Board
from roost.planner.drafting import Draft, Wish
from roost.wire.plans import CreatePlan, ListPlans, PlanDetail, ShowPlan
from tests.integration.control.rig import OPERATOR, Rig, run
from tests.integration.control.test_plans import plan, uneven
from tests.integration.control.test_topology import star

DAY_MS = 86_400_000


def runner_of(rig: Rig) -> PlanRunner:
    return next(part for part in rig.plane.parts if isinstance(part, PlanRunner))


def test_a_plan_ends_though_its_target_is_lost_in_the_middle_and_never_fenced(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=8)
        await rig.running("vm-0")
        await rig.host("b", cpu=8, memory=8)
        made = await plan(rig, goal="move", vms=["vm-0"], to="b", apply=True)
        for _ in range(20):
            await rig.plane.run_singletons()
            await rig.one_round()
            row = await rig.row("vm-0")
            if row is not None and row.phase == "moving":
                break
        await rig.pass_by(300, silent=("b",))
        over = await rig.plane.plans.get(made.id)
        # The plan is done with all that it could do, and says what it could not.
        assert (over.state, over.failed, over.why) == ("done", 1, "1 VMs could not move")
        assert (over.listed[0].state, over.listed[0].why) == (
            "failed", "host 'b' was lost in the middle of the move, and is not back",
        )  # fmt: skip
        row = await rig.row("vm-0")
        assert row is not None
        assert row.phase != ""  # where it runs is for b to say
        await rig.pass_by(60)
        assert (await rig.state("vm-0"))[0] == "running"

    run(database_url, test, timers=Timers(plan_s=60.0))


def test_moves_are_found_by_how_and_when_they_ended(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        found = await rig.store.read(lambda c: inspect(c).get_indexes("plan_moves"))
        assert ["state", "ended_ms"] in [each["column_names"] for each in found]

    run(database_url, test)


def test_moves_are_listed_by_pages_and_no_writer_waits_for_the_list(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one: list[str] = []
    insert = Tx.insert

    def counting(self: Tx, table: Any, row: Any) -> Any:
        one_by_one.append(table.name)
        return insert(self, table, row)

    monkeypatch.setattr(Tx, "insert", counting)

    async def test(rig: Rig) -> None:
        await uneven(rig)
        write, answers = rig.store.write, list[object]()

        async def noting(change: Any, *given: Any) -> Any:
            answers.append(found := await write(change, *given))
            return found

        monkeypatch.setattr(rig.store, "write", noting)
        made = await plan(rig, goal="balance")
        assert plan_moves.name not in one_by_one
        assert made.next is None
        first = await rig.plane.plans.get(made.id, ShowPlan(limit=3))
        assert [each.number for each in first.listed] == [1, 2, 3]
        assert (first.next, first.moves) == (3, 4)
        rest = await rig.plane.plans.get(made.id, ShowPlan(limit=3, after=3))
        assert ([each.number for each in rest.listed], rest.next) == ([4], None)
        for act in (rig.plane.plans.apply, rig.plane.plans.pause, rig.plane.plans.cancel):
            await act(made.id, OPERATOR)
        assert not any(isinstance(each, PlanDetail) for each in answers)
        none = await rig.plane.plans.get(made.id, ShowPlan(move_state="planned"))
        assert (none.state, none.listed) == ("cancelled", [])

    run(database_url, test)


def test_what_is_planned_anew_leaves_vms_of_other_plans_alone(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        later = "2027-01-01T00:00:00Z"
        await plan(rig, goal="move", vms=["vm-0"], to="c", apply=True, start=later)
        made = await plan(rig, goal="drain", hosts=["a"], apply=True, at_once=1)
        assert "vm-0" not in [each.name for each in made.listed]
        await rig.pass_by(4)
        await rig.pass_by(150, silent=("b",))
        anew = await rig.plane.plans.get(made.id)
        assert anew.replans >= 1
        assert "vm-0" not in [each.name for each in anew.listed]

    run(database_url, test, dated=True)


def test_patience_is_not_spent_while_a_plan_is_paused(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=8)
        await rig.running("vm-0")
        await rig.host("b", cpu=8, memory=8)
        made = await plan(rig, goal="move", vms=["vm-0"], to="b")
        await rig.pass_by(100, silent=("a",))
        await rig.plane.plans.apply(made.id, OPERATOR)
        await rig.pass_by(50, silent=("a",))  # a is offline, and cannot send it
        await rig.plane.plans.pause(made.id, OPERATOR)
        await rig.pass_by(100, silent=("a",))
        await rig.plane.plans.resume(made.id, OPERATOR)
        await rig.pass_by(20, silent=("a",))
        waits = await rig.plane.plans.get(made.id)
        assert (waits.state, waits.listed[0].state) == ("running", "planned")
        await rig.pass_by(30)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.done, done.failed) == ("done", 1, 0)
        assert await rig.state("vm-0") == ("running", "b")

    run(database_url, test, timers=Timers(plan_s=60.0))


def test_a_plan_whose_moves_count_still_makes_no_room_for_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.control.plans.writing.MOST_KEPT", 2)

    async def test(rig: Rig) -> None:
        await uneven(rig)
        made = await plan(rig, goal="move", vms=["vm-0"], to="b", apply=True)
        await rig.pass_by(20)
        assert (await rig.plane.plans.get(made.id)).done == 1
        for _ in range(4):
            draft = await plan(rig, goal="drain", hosts=["a"])
            await rig.plane.plans.cancel(draft.id, OPERATOR)
        kept = (await rig.plane.plans.list(ListPlans())).plans
        assert {each.id for each in kept} == {made.id, draft.id}  # drafts go first
        rig.clock.move(DAY_MS // 1000)
        await rig.pass_by(2)
        await plan(rig, goal="drain", hosts=["a"])
        with pytest.raises(NotFound):
            await rig.plane.plans.get(made.id)
        await rig.check()

    run(database_url, test, dated=True)


def test_who_hangs_up_ends_the_thread_before_the_next_has_a_turn(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(board: Board, _wish: Wish) -> Draft:
        begun.set()
        for _ in range(1000):
            if board.given_up():
                break
            ended.wait(0.01)
        ended.set()
        raise AssertionError("nobody hears this")

    monkeypatch.setattr(planning_module, "draft", endless)

    async def test(rig: Rig) -> None:
        await uneven(rig)
        asking = asyncio.create_task(
            rig.plane.plans.create(CreatePlan(goal="balance", dry_run=True), OPERATOR)
        )
        await asyncio.to_thread(begun.wait, 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert ended.is_set()

    run(database_url, test)


def test_one_answer_serves_all_who_ask_for_recommendations(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts: list[str] = []
    draft = planning_module.draft

    def counting(board: Board, wish: Wish) -> Draft:
        drafts.append(wish.goal)
        return draft(board, wish)

    monkeypatch.setattr(planning_module, "draft", counting)

    async def test(rig: Rig) -> None:
        await uneven(rig)
        told = await asyncio.gather(*(rig.plane.plans.recommend() for _ in range(10)))
        assert all(each == told[0] for each in told)
        assert len(drafts) == 6  # one of each goal that is recommended
        rig.clock.move(60)
        await rig.plane.plans.recommend()
        assert len(drafts) == 12

    run(database_url, test)


def test_a_topology_is_read_in_a_thread(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[threading.Thread] = []
    read = topology_module._routes_of

    def noting(row: Any) -> Any:
        where.append(threading.current_thread())
        return read(row)

    monkeypatch.setattr(topology_module, "_routes_of", noting)

    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        await rig.plane.topology.apply(star("a", "b"), OPERATOR)
        await rig.hear()
        assert (await rig.plane.topology.get()).generation == 1
        assert (await rig.plane.topology.path("a", "b")).hops == 2
        assert len(where) == 1
        assert where[0] is not threading.main_thread()

    run(database_url, test)


def test_plans_that_ended_long_ago_are_forgotten(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await uneven(rig)
        over = await plan(rig, goal="balance")
        await rig.plane.plans.cancel(over.id, OPERATOR)
        draft = await plan(rig, goal="balance")
        await rig.plane.run_singletons()
        retention, now = runner_of(rig)._retention, rig.clock.wall_ms()
        await retention.forget_old(now + 29 * DAY_MS)
        assert (await rig.plane.plans.get(over.id)).state == "cancelled"
        await retention.forget_old(now + 31 * DAY_MS)
        with pytest.raises(NotFound):
            await rig.plane.plans.get(over.id)
        stale = await rig.plane.plans.get(draft.id)
        assert (stale.state, stale.why) == ("cancelled", "nobody applied it for 30 days")
        await rig.check()  # folded from events it is the same

    run(database_url, test, dated=True)


def test_a_pass_of_learning_sorts_vms_by_host_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_self: VMTable, _row: int) -> Any:
        raise AssertionError("all VMs were looked through for one host")

    async def test(rig: Rig) -> None:
        await uneven(rig)
        await rig.move("vm-3", "b")
        fleet = rig.plane.roster.fleet
        told = [each.tolist() for each in fleet.vms.by_host(fleet.hosts.count)]
        assert told == [fleet.vms.on_host(row).tolist() for row in range(fleet.hosts.count)]
        monkeypatch.setattr(VMTable, "on_host", never)
        homes = {home.host: len(home.claims) for home in rig.plane.learning._homes()}
        assert homes == {"a": 5, "b": 1, "c": 0}

    run(database_url, test)
