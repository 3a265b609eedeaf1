"""Moves through all their phases, cut off in each, and drains."""

import logging

import pytest

from roost.base.errors import Conflict, NoFit, NotFound
from roost.base.units import GIB
from roost.control.moves.draining import AT_ONCE
from roost.model.states import Seen
from roost.wire.agentlink import (
    AmountInfo,
    CellInfo,
    DeviceInfo,
    MoveInfo,
    ProgressInfo,
    SeenVM,
)
from roost.wire.bodies import ConstraintsBody, MigrateVM, ResizeVM
from roost.wire.groups import SetBudget
from tests.integration.control.rig import OPERATOR, TIMERS, Rig, run

PHASES = ("preparing", "moving", "landing")


def test_a_move_claims_both_hosts_until_both_have_reported(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        begun = await rig.migrate("web", "b")
        assert (begun.state, begun.migration and begun.migration.phase) == (
            "migrating", "preparing",
        )  # fmt: skip
        assert await rig.claims() == {"web:run": "a", "web:migrate_in": "b"}
        await rig.until_phase("web", "moving")
        assert await rig.claims() == {"web:run": "a", "web:migrate_in": "b"}
        await rig.until_phase("web", "landing")
        assert await rig.claims() == {"web:run": "a", "web:migrate_in": "b"}
        assert (a.copies[made.id].state, b.copies[made.id].state) == ("moved", "ready")
        rig.step(b)
        await rig.hear()
        assert await rig.claims() == {"web:run": "b", "web:hold": "a"}
        assert a.copies[made.id].state == "moved"  # it keeps what it sent until it is told
        await rig.settle()
        assert await rig.state("web") == ("running", "b")
        assert await rig.claims() == {"web:run": "b"}
        assert a.copies == {}

    run(database_url, test)


def test_what_cannot_move_says_why(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=2)
        await rig.host("b", cpu=1)
        await rig.create("web")
        with pytest.raises(Conflict, match="not started"):
            await rig.migrate("web")
        await rig.settle()
        with pytest.raises(Conflict, match="already"):
            await rig.migrate("web", "a")
        with pytest.raises(NotFound):
            await rig.migrate("web", "nowhere")
        await rig.running("big", cpu=1)
        await rig.plane.vms.delete("big", None, OPERATOR)
        with pytest.raises(Conflict, match="deleted"):
            await rig.migrate("big")
        await rig.create("full", constraints={"hosts": ["b"]})
        await rig.settle()
        with pytest.raises(NoFit):
            await rig.migrate("web", "b")
        await rig.check()

    run(database_url, test)


def test_a_moving_vm_can_be_neither_moved_nor_resized(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("a", "b", "c"):
            await rig.host(name)
        await rig.running("web")
        await rig.migrate("web", "b")
        with pytest.raises(Conflict, match="moving"):
            await rig.migrate("web", "c")
        with pytest.raises(Conflict, match="moving"):
            await rig.plane.vms.resize("web", None, ResizeVM(cpu=2), OPERATOR)
        await rig.settle()

    run(database_url, test)


@pytest.mark.parametrize("phase", PHASES)
def test_a_vm_deleted_in_any_phase_leaves_nothing_behind(database_url: str, phase: str) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a", cpu=1), await rig.host("b", cpu=1)
        await rig.running("web", labels={"app": "web"})
        await rig.migrate("web", "b")
        await rig.until_phase("web", phase)
        await rig.plane.vms.delete("web", None, OPERATOR)
        await rig.check()
        await rig.settle()
        await rig.converged()
        assert await rig.claims() == {}
        assert (a.copies, b.copies) == ({}, {})

    run(database_url, test)


@pytest.mark.parametrize("phase", PHASES)
def test_power_changed_in_any_phase_does_not_lose_the_move(database_url: str, phase: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", phase)
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.settle()
        assert await rig.state("web") == ("stopped", "b")
        await rig.converged()

    run(database_url, test)


@pytest.mark.parametrize("phase", PHASES)
def test_old_and_repeated_reports_change_nothing_in_any_phase(
    database_url: str, phase: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        made = await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", phase)
        row = await rig.row("web")
        assert row is not None
        for host in ("a", "b"):
            for generation in range(1, row.generation):
                for seen in ("ready", "moved", "absent", "failed", "stopped", "running"):
                    await rig.report(host, SeenVM(made.id, generation, seen))  # type: ignore[arg-type]
                    now = await rig.row("web")
                    assert now is not None
                    assert (now.phase, now.generation) == (phase, row.generation)
        await rig.check()
        for agent in rig.agents.values():  # what was said before is said again
            agent.report(full=True)
            agent.speak(repeat=True)
        await rig.hear()
        await rig.settle()
        assert await rig.state("web") == ("running", "b")
        assert await rig.claims() == {"web:run": "b"}

    run(database_url, test)


def test_a_target_that_fails_to_prepare_gets_a_tombstone_and_the_vm_stays(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        b = await rig.host("b")
        made = await rig.running("web")
        b.failing[made.id] = "no_network"
        await rig.migrate("web", "b")
        await rig.one_round()
        row = await rig.row("web")
        assert row is not None
        assert (row.phase, row.target) == ("", None)
        assert await rig.claims() == {"web:run": "a", "web:hold": "b"}
        b.failing.clear()
        await rig.settle()
        assert await rig.claims() == {"web:run": "a"}
        assert await rig.state("web") == ("running", "a")
        await rig.move("web", "b")

    run(database_url, test)


@pytest.mark.parametrize("phase", ["preparing", "moving"])
def test_a_move_whose_target_is_lost_is_taken_back(database_url: str, phase: str) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", phase)
        b.disconnect()
        a.peers = {}
        await rig.pass_by(TIMERS.offline_s + 10)
        row = await rig.row("web")
        assert row is not None
        assert (row.phase, rig.plane.roster.host_name(row.host)) == ("", "a")
        await rig.settle()
        assert a.copies[made.id].state == "running"
        b.connect(rig.plane)
        await rig.settle()
        assert made.id not in b.copies
        await rig.converged()

    run(database_url, test)


def test_a_host_that_has_not_cleaned_up_is_no_target(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        await rig.host("b")
        await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", "landing")
        a.disconnect()
        await rig.settle()
        assert await rig.state("web") == ("running", "b")
        assert await rig.claims() == {"web:run": "b", "web:hold": "a"}
        with pytest.raises((Conflict, NoFit)):
            await rig.migrate("web", "a")
        a.connect(rig.plane)
        await rig.settle()
        await rig.move("web", "a")

    run(database_url, test)


def test_a_drain_moves_two_at_a_time_and_names_who_is_stuck(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=4)
        await rig.host("b", cpu=2)
        for n in range(3):
            await rig.running(f"v{n}")
        await rig.running("pinned", constraints={"hosts": ["a"]})
        state = await rig.plane.hosts.drain("a", OPERATOR)
        assert (state.state, state.left) == ("draining", 4)
        with pytest.raises(NoFit):
            await rig.create("new", constraints={"hosts": ["a"]})
        most = 0
        for _ in range(30):
            await rig.plane.run_singletons()
            rows = [await rig.row(f"v{n}") for n in range(3)]
            most = max(most, sum(bool(row and row.phase) for row in rows))
            await rig.one_round()
        await rig.check()
        assert most == AT_ONCE
        state = await rig.plane.hosts.drain_state("a")
        assert (state.state, state.left, state.moving) == ("blocked", 2, None)
        stuck = {each["vm"] for each in state.blocked}
        assert "pinned" in stuck
        for name in stuck:
            await rig.plane.vms.delete(name, None, OPERATOR)
        await rig.settle(keep=True)
        assert (await rig.plane.hosts.drain_state("a")).state == "empty"
        assert (await rig.plane.hosts.uncordon("a", OPERATOR)).admin == "open"

    run(database_url, test)


def test_a_drain_does_not_ask_again_and_again_for_vms_that_may_not_go_yet(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While one member of a group with a budget moves, each look would be a transaction each."""

    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=8)
        for n in range(4):
            await rig.running(f"v{n}", groups=[{"name": "g", "rule": "affinity", "hard": False}])
        await rig.host("b", cpu=8)
        await rig.plane.groups.set_budget("g", None, SetBudget(at_most=1), OPERATOR)
        await rig.plane.hosts.drain("a", OPERATOR)
        caplog.set_level(logging.INFO, "roost.drain")
        for _ in range(20):  # the agents are slow: the first move does not end meanwhile
            await rig.plane.run_singletons()
            rig.clock.move(0.2)
        said = [each.getMessage() for each in caplog.records if each.name == "roost.drain"]
        assert len([each for each in said if " moves" in each]) == 1
        assert len([each for each in said if "stays on a" in each]) == 3
        await rig.settle(keep=True)
        assert (await rig.plane.hosts.drain_state("a")).state == "empty"

    run(sqlite_url, test)


def test_a_move_carries_its_devices_and_cells(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        special = {
            "extended": {"fpga": AmountInfo(2)},
            "devices": [DeviceInfo("a100"), DeviceInfo("a100")],
            "cells": [CellInfo(2000, 4 * GIB), CellInfo(2000, 4 * GIB)],
        }
        for name in ("a", "b"):
            await rig.host(name, **special)
        await rig.running("first", gpu=1, numa="one", extended={"fpga": 1})
        made = await rig.running("web", gpu=1, numa="one", extended={"fpga": 1})
        assert rig.agents["a"].vms[made.id].devices == [1]
        await rig.migrate("web", "b")
        await rig.until_phase("web", "landing")
        assert rig.agents["b"].vms[made.id].devices == [0]
        await rig.restart()
        await rig.check()
        for agent in rig.agents.values():
            agent.connect(rig.plane)
        await rig.settle()
        assert rig.agents["b"].vms[made.id].devices == [0]
        await rig.migrate("web", "a")
        await rig.until_phase("web", "moving")
        await rig.plane.vms.delete("web", None, OPERATOR)
        rig.agents["a"].disconnect()
        await rig.settle()  # b says that it is gone; a still has to: its room is held without a VM
        rig.agents["a"].digest = ""
        await rig.restart()
        await rig.check()
        for agent in rig.agents.values():
            agent.connect(rig.plane)
        await rig.settle()
        await rig.converged()

    run(database_url, test)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("phase", ["preparing", "moving", "landing"])
def test_a_cancelled_move_ends_with_one_copy_wherever_it_was(
    database_url: str, phase: str, alone: bool
) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        b.arrives_alone = alone
        made = await rig.running("web")
        await rig.migrate("web", "b")
        if alone and phase == "landing":
            await rig.until_phase("web", "moving")
            rig.step(a)  # it sends, and the ledger does not know yet
        else:
            await rig.until_phase("web", phase)
        late = phase == "landing" and not alone
        if late:
            with pytest.raises(Conflict, match="left its host"):
                await rig.plane.moves.cancel("web", None, OPERATOR)
        else:
            await rig.plane.moves.cancel("web", None, OPERATOR)
        await rig.settle()
        assert await rig.state("web") == ("running", "b" if phase == "landing" else "a")
        assert [made.id in agent.copies for agent in (a, b)].count(True) == 1
        await rig.converged()
        with pytest.raises(Conflict, match="not moving"):
            await rig.plane.moves.cancel("web", None, OPERATOR)

    run(database_url, test)


def test_a_vm_whose_move_was_given_up_is_told_to_be_where_it_stays(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("a", "b"):
            await rig.host(name)
        await rig.running("web")

        async def told() -> str | None:
            placement = (await rig.get("web")).placement
            return placement.host if placement is not None else None

        for _ in range(2):
            await rig.migrate("web", "b")
            await rig.until_phase("web", "preparing")
            assert await told() == "b"
            await rig.plane.moves.cancel("web", None, OPERATOR)
            await rig.settle()
            assert await told() == "a"
        await rig.migrate("web", "b")
        await rig.settle()
        assert await told() == "b"

    run(database_url, test)


def test_what_was_lost_on_its_way_goes_on_where_it_came_from(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", "landing")
        b.lose_incoming(made.id)
        await rig.until_phase("web", "recalling")
        assert a.copies[made.id].state == "moved"  # not before the target has said so
        await rig.settle()
        assert await rig.state("web") == ("running", "a")
        assert (await rig.get("web")).generation == a.copies[made.id].generation
        assert a.copies[made.id].order.restarts == 0  # it went on, nothing was booted
        await rig.converged()

    run(database_url, test)


def test_the_target_alone_decides_what_became_of_an_undecided_switch_over(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        for arrived in (False, True):
            here, there = a, b
            there.arrives_alone = arrived
            made = await rig.get("web") if arrived else await rig.running("web")
            await rig.migrate("web", "b")
            await rig.until_phase("web", "moving")
            here.peers = {}  # nothing gets through
            rig.step(here)
            row = await rig.row("web")
            assert row is not None
            if arrived:
                here.copies[made.id].state = "moved"
                there.copies[made.id].received = "running"
            stuck = SeenVM(
                made.id, row.generation, "switching", "switchover_stuck", "?", "permanent"
            )
            await rig.report("a", stuck)
            await rig.until_phase("web", "recalling")
            here.peers = rig.agents
            await rig.settle()
            assert await rig.state("web") == ("running", "b" if arrived else "a")
            await rig.converged()

    run(database_url, test)


def test_progress_is_told_and_changes_no_order(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a, _ = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        await rig.plane.moves.migrate(
            "web", None, MigrateVM(host="b", bandwidth="10MiB", limit_s=90), OPERATOR
        )
        a.peers = {}
        await rig.until_phase("web", "moving")
        row = await rig.row("web")
        assert row is not None
        made_so_far = ProgressInfo(sent_bytes=7, left_bytes=3, passes=2)
        await rig.report("a", SeenVM(made.id, row.generation - 1, "running", progress=made_so_far))
        a.listen()
        moving = (await rig.get("web")).migration
        assert moving is not None
        assert moving.progress is not None
        assert (moving.progress.sent_bytes, moving.progress.passes) == (7, 2)
        assert a.vms[made.id].move == MoveInfo(
            begun=row.generation - 1, bandwidth_bytes=10 * 2**20, limit_s=90.0
        )
        assert a.vms[made.id].endpoint == {"uri": "model:b"}
        after = await rig.row("web")
        assert after is not None
        assert after.generation == row.generation

    run(database_url, test)


def test_a_guest_that_switches_itself_off_stays_off_until_somebody_asks(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        made = await rig.running("web")
        a.copies[made.id].state = "stopped"
        await rig.report("a", SeenVM(made.id, 1, "stopped", "guest_shutdown"))
        await rig.settle()
        assert await rig.state("web") == ("stopped", "a")
        await rig.plane.vms.start("web", None, OPERATOR)
        await rig.settle()
        assert await rig.state("web") == ("running", "a")

    run(database_url, test)


@pytest.mark.parametrize("said", ["failed", "stopped"])
@pytest.mark.parametrize("phase", ["cancelling", "recalling"])
def test_a_source_that_does_not_run_it_is_not_believed_to_have_it(
    database_url: str, phase: str, said: Seen
) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", "moving")
        a.listen()
        a.work()  # it sends; the target has it, and says nothing yet
        b.arrives_alone = True
        b.work()
        assert b.copies[made.id].runs
        await rig.plane.moves.cancel("web", None, OPERATOR)
        if phase == "recalling":
            row = await rig.row("web")
            assert row is not None
            await rig.report("a", SeenVM(made.id, row.generation, "switching"))
        row = await rig.row("web")
        assert row is not None
        assert row.phase == phase
        failure = "transient" if said == "failed" else None
        unclear = SeenVM(made.id, row.generation, said, "vm_unreadable", "?", failure)
        await rig.report("a", unclear)
        for _ in range(3):
            rig.step(a)
            await rig.hear()
            rig.one_copy()
        await rig.settle()
        assert await rig.state("web") == ("running", "b")
        await rig.converged()

    run(database_url, test)


def test_a_vm_is_not_sent_to_a_host_that_its_own_constraint_does_not_name(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        for name in "abc":
            await rig.host(name)
        made = await rig.running("web", constraints=ConstraintsBody(hosts=["a", "b"]))
        other = "b" if made.host == "a" else "a"
        with pytest.raises(NoFit):
            await rig.migrate("web", "c")
        assert await rig.claims() == {"web:run": made.host}
        await rig.migrate("web", other)
        await rig.settle()
        assert await rig.state("web") == ("running", other)

    run(database_url, test)
