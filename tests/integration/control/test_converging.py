"""Plans and VMs that write faster than they can be sent: slowed down, by post-copy, refused."""

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from roost.control.plans.ordering import order_of, unsendable
from roost.control.plans.record import Asked
from roost.control.vms.move_record import record_of
from roost.ledger.schema.rows import PlanMoveRow, PlanRow, VMRow
from roost.ledger.schema.tables import plan_moves, plans, vms
from roost.ledger.writes.transaction import row_json
from roost.model.series import Reading, Subject
from roost.wire.agentlink import MoveInfo
from roost.wire.bodies import MigrateVM
from roost.wire.plans import MoveCostBody
from tests.integration.control.rig import Rig, run
from tests.integration.control.test_plans import plan

HOT, CALM = 1e9, 1e3  # bytes a second, on a path that is taken for 1.25e8


async def wrote(rig: Rig, name: str, rate: float) -> None:
    now = rig.clock.wall_ms()
    subject = Subject("vm", (await rig.get(name)).id)
    await rig.series.put([Reading(subject, now - 1, {"dirty_bytes_per_s": rate})], now)


async def two_to_move(rig: Rig) -> None:
    await rig.host("a", cpu=8, memory=64)
    for name, rate in (("hot", HOT), ("calm", CALM)):
        await rig.running(name)
        await wrote(rig, name, rate)
    await rig.host("b", cpu=8, memory=64)


async def orders(rig: Rig) -> dict[str, MoveInfo]:
    """Return how VMs that move now were ordered to."""
    moving = [VMRow(**row) for row in await rig.rows(select(vms)) if row["phase"]]
    return {vm.name: record_of(vm).info for vm in moving}


@pytest.mark.parametrize("then", ["auto_converge", "post_copy"])
def test_agents_are_told_what_the_plan_says_of_vms_that_write_too_fast(
    database_url: str, then: str
) -> None:
    async def test(rig: Rig) -> None:
        await two_to_move(rig)
        made = await plan(rig, goal="drain", hosts=["a"], not_converging=then, apply=True)
        assert made.not_converging == then
        foreseen = {each.name: each.predicted.then for each in made.listed}
        assert foreseen == {"hot": then, "calm": "converges"}
        for _ in range(4):
            await rig.plane.run_singletons()
            await rig.hear()
        told = {vm: (i.auto_converge, i.post_copy) for vm, i in (await orders(rig)).items()}
        hot = (then == "auto_converge", then == "post_copy")
        assert told == {"hot": hot, "calm": (True, False)}
        await rig.pass_by(60)
        assert (await rig.plane.plans.get(made.id)).done == 2

    run(database_url, test)


def test_what_a_plan_refuses_stays_and_the_rest_is_sent_without_help(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_to_move(rig)
        made = await plan(rig, goal="drain", hosts=["a"], not_converging="refuse", apply=True)
        assert [each.name for each in made.listed] == ["calm"]
        [stays] = made.blocked
        assert (stays.name, stays.guard) == ("hot", "convergence")
        assert stays.why.startswith("it writes 953.7 MiB a second, more than the path to b takes")
        for _ in range(4):
            await rig.plane.run_singletons()
            await rig.hear()
        found = await orders(rig)
        assert {vm: (i.auto_converge, i.post_copy) for vm, i in found.items()} == {
            "calm": (False, False)
        }
        await rig.pass_by(60)
        done = await rig.plane.plans.get(made.id)
        assert (done.state, done.why) == ("done", "1 VMs could not move")
        assert (await rig.get("hot")).host == "a"

    run(database_url, test)


def test_a_vm_is_refused_by_what_was_measured_and_not_by_a_guess_that_it_proves_wrong(
    sqlite_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8, memory=64)
        await rig.running("large", memory="16GiB")
        await rig.host("b", cpu=8, memory=64)
        asked = {"goal": "drain", "hosts": ["a"], "not_converging": "refuse"}
        guessed = await plan(rig, **asked)
        assert guessed.moves == 0
        assert "(a guess: it was not measured)" in guessed.blocked[0].why
        await wrote(rig, "large", CALM)
        measured = await plan(rig, **asked)
        assert [each.name for each in measured.listed] == ["large"]
        assert measured.blocked == []

    run(sqlite_url, test)


def test_a_balance_moves_another_vm_than_the_one_that_it_refuses(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_to_move(rig)
        found = await plan(rig, goal="balance", not_converging="refuse")
        assert [each.name for each in found.listed] == ["calm"]
        assert {each.name for each in found.vetoed if each.guard == "convergence"} <= {"hot"}

    run(sqlite_url, test)


def rows_of(then: str, policy: str) -> tuple[PlanRow, PlanMoveRow]:
    plan_row = dict.fromkeys(plans.columns.keys()) | {
        "id": "p", "asked": row_json(Asked("drain", not_converging=policy)),  # type: ignore[arg-type]
    }  # fmt: skip
    predicted = row_json(MoveCostBody(total_s=1.0, then=then))
    move = dict.fromkeys(plan_moves.columns.keys()) | {"plan": "p", "predicted": predicted}
    return PlanRow(**plan_row), PlanMoveRow(**move)  # type: ignore[arg-type]


def test_a_move_of_which_only_later_readings_say_no_is_not_begun() -> None:
    _, move = rows_of("refuse", "refuse")
    outcome = unsendable(move)
    assert outcome is not None
    assert (outcome.state, outcome.why[:26]) == ("failed", "it would not converge, and")
    assert unsendable(rows_of("converges", "refuse")[1]) is None


def test_plans_of_earlier_releases_slow_down() -> None:
    row, move = rows_of("auto_converge", "auto_converge")
    old = replace(row, asked='{"goal":"drain"}')
    assert order_of(old, move) == MigrateVM(auto_converge=True, post_copy=False)
