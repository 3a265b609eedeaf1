"""Room for the moves of plans: held from when a plan is applied, and given back however it ends."""

from rich.console import Console

from roost.base.timestamps import timestamp
from roost.cli.show.plans import detail
from roost.control.admin.upgrade import finish_upgrade
from roost.control.plans.record import Asked
from roost.ledger.claims.makingroom import PLAN
from roost.ledger.schema.tables import counters, holds
from roost.ledger.upgrade.older import BEFORE_COUNTERS
from roost.ledger.writes.statements import find_rows
from roost.parts.sealing import Seal
from roost.wire.plans import PlanDetail
from tests.integration.control.rig import OPERATOR, Rig, run
from tests.integration.control.test_plans import plan

MINUTE_MS = 60_000


async def to_a_small_host(rig: Rig, **given: object) -> PlanDetail:
    """Plan to move the VM of one host to another one, which has room for it and no more."""
    await rig.host("a", cpu=4, memory=4)
    await rig.running("vm-0", cpu=4)
    await rig.host("b", cpu=4, memory=4)
    made = await plan(rig, goal="move", vms=["vm-0"], to="b", apply=True, **given)
    await rig.plane.run_singletons()
    return await rig.plane.plans.get(made.id)


async def in_a_minute(rig: Rig) -> PlanDetail:
    return await to_a_small_host(rig, start=timestamp(rig.clock.wall_ms() + MINUTE_MS))


async def held(rig: Rig) -> list[tuple[int, int]]:
    """Return the cpu and the places that hosts hold for plans."""
    rows = await rig.store.read(lambda c: find_rows(c, holds, {"kind": PLAN}))
    return [(row["cpu_milli"], row["vms"]) for row in rows]


def shown(found: PlanDetail) -> str:
    """Return a plan as a terminal is shown it."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(detail(found))
    return capture.get()


async def restart(rig: Rig) -> None:
    await rig.restart()
    for agent in rig.agents.values():
        agent.connect(rig.plane)


def test_nothing_is_held_while_a_process_of_the_release_before_may_carry_plans_out(
    postgres_url: str,
) -> None:
    """It knows no such holds: its moves would find no room on their own targets."""

    async def test(rig: Rig) -> None:
        flag = {"name": BEFORE_COUNTERS, "value": 1}
        await rig.store.write(lambda tx: tx.insert(counters, flag))
        made = await in_a_minute(rig)
        assert (made.state, await held(rig)) == ("waiting", [])
        await finish_upgrade(rig.store, Seal(), "test")
        await rig.plane.run_singletons()
        assert await held(rig) == [(4000, 1)]

    run(postgres_url, test, dated=True)


def test_nobody_takes_the_room_of_a_plan_that_waits_for_its_start(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        made = await in_a_minute(rig)
        assert (made.state, made.held, await held(rig)) == ("waiting", 1, [(4000, 1)])
        assert (await rig.create("late", on_no_fit="queue")).host is None
        await rig.pass_by(90)
        assert (await rig.plane.plans.get(made.id)).state == "done"
        assert (await rig.state("vm-0"), await held(rig)) == (("running", "b"), [])
        assert (await rig.get("late")).host == "a"  # which the plan has left
        await rig.check()

    run(database_url, test)


def test_a_plan_that_is_cancelled_gives_its_room_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        made = await in_a_minute(rig)
        await rig.plane.plans.cancel(made.id, OPERATOR)
        await rig.plane.run_singletons()
        assert await held(rig) == []
        assert (await rig.create("late")).host == "b"
        await rig.check()

    run(database_url, test)


def test_a_paused_plan_keeps_its_room_and_says_so(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        made = await in_a_minute(rig)
        assert "until it is resumed" not in shown(made)
        paused = await rig.plane.plans.pause(made.id, OPERATOR)
        await rig.pass_by(300)
        words = "room for 1 moves is held on their targets, until it is resumed or cancelled"
        for found in (paused, await rig.plane.plans.get(made.id)):
            assert words in shown(found)
        assert (await rig.create("late", on_no_fit="queue")).host is None

    run(database_url, test)


def test_a_plan_that_fails_gives_its_room_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        now = rig.clock.wall_ms()
        window = {"start": timestamp(now + MINUTE_MS), "end": timestamp(now + MINUTE_MS + 30_000)}
        made = await to_a_small_host(rig, **window)
        await rig.plane.plans.pause(made.id, OPERATOR)
        await rig.pass_by(100)
        assert await held(rig) == [(4000, 1)]
        await rig.plane.plans.resume(made.id, OPERATOR)
        await rig.pass_by(20)
        assert (await rig.plane.plans.get(made.id)).state == "failed"
        assert await held(rig) == []

    run(database_url, test)


def test_the_room_of_a_vm_that_is_deleted_is_free_at_once(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await in_a_minute(rig)
        await rig.plane.vms.delete("vm-0", None, OPERATOR)
        await rig.plane.run_singletons()
        assert await held(rig) == []

    run(database_url, test)


def test_the_next_process_keeps_the_room_and_moves_into_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        made = await in_a_minute(rig)
        await restart(rig)
        await rig.settle(check=False)
        assert (await rig.create("late", on_no_fit="queue")).host is None
        await rig.pass_by(90)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.replans, await held(rig)) == ("done", 0, [])
        await rig.check()

    run(database_url, test)


def test_room_that_was_left_half_given_back_is_given_back_by_the_next_process(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        made = await in_a_minute(rig)
        await rig.plane.plans.cancel(made.id, OPERATOR)  # and killed before it looks again
        await restart(rig)
        assert await held(rig) == [(4000, 1)]
        await rig.settle(check=False)
        await rig.pass_by(60)  # until the lease of the dead one has run out
        assert await held(rig) == []

    run(database_url, test)


def test_room_that_others_leave_is_held_as_it_becomes_free(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=4, memory=4)
        await rig.running("vm-0", cpu=4)
        await rig.host("b", cpu=4, memory=4)
        later = timestamp(rig.clock.wall_ms() + MINUTE_MS)
        await plan(rig, goal="move", vms=["vm-0"], to="b", apply=True, start=later)
        await rig.running("first", cpu=3)  # before anybody has looked at the plan
        await rig.plane.run_singletons()
        assert await held(rig) == [(1000, 1)]
        await rig.plane.vms.delete("first", None, OPERATOR)
        await rig.settle()
        assert await held(rig) == [(4000, 1)]
        await rig.check()

    run(database_url, test)


def test_a_plan_that_is_drafted_anew_may_use_the_room_that_was_held_for_it(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        made = await in_a_minute(rig)
        planning = rig.plane.plans._planning
        asked = Asked("move", vms=[made.listed[0].vm], to="b")
        assert not (await planning.draft(asked)).moves
        assert len((await planning.draft(asked, own=made.id)).moves) == 1

    run(database_url, test)
