"""A refusal that says after which moves a VM would fit, and what comes of its command."""

import re
import shlex
from typing import Any

import pytest

from roost.parts.access import Principal
from roost.wire.bodies import DemandBody, DryRun, RejectionBody
from roost.wire.plans import CreatePlan, PlanDetail
from tests.integration.control.rig import ADMIN, GIB, OPERATOR, Rig, run
from tests.integration.control.test_maintenance_commands import says, typed

MEMBER = Principal("mia", "member", "default")


async def fragmented(rig: Rig) -> None:
    """Three hosts of 4 cores with 2 promised each."""
    for name in "abc":
        await rig.host(name, cpu=4, memory=8)
        await rig.running(f"vm-{name}", cpu=2)
        await rig.plane.hosts.cordon(name, ADMIN)
    for name in "abc":
        await rig.plane.hosts.uncordon(name, ADMIN)


async def dry_run(rig: Rig, who: Principal = OPERATOR, **given: Any) -> RejectionBody:
    body = DryRun(name="large", demand=DemandBody(cpu=4, memory=GIB), **given)
    found = await rig.plane.questions.dry_run(body, who)
    assert isinstance(found, RejectionBody)
    return found


def test_a_waiting_vm_is_told_the_move_and_starts_after_the_plan(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fragmented(rig)
        await rig.create("large", cpu=4, on_no_fit="queue")
        told = (await rig.plane.vms.explain("large", None, (), OPERATOR)).answer
        assert isinstance(told, RejectionBody)
        assert told.after_moves is not None
        [move] = told.after_moves.moves
        assert told.after_moves.host == move.source
        assert (move.name, move.source) in {(f"vm-{name}", name) for name in "abc"}
        [command] = told.after_moves.commands
        words = shlex.split(command)
        assert words[:7] == ["roost", "plan", "create", "--goal", "defragment", "--cpu", "4"]
        size = DemandBody(cpu=4, memory=words[words.index("--memory") + 1])
        body = CreatePlan(goal="defragment", demand=size, most=2, apply=True)
        made = await rig.plane.plans.create(body, OPERATOR)
        assert isinstance(made, PlanDetail)
        assert [(e.vm, e.source, e.target) for e in made.listed] == [
            (move.vm, move.source, move.target)
        ]
        await rig.pass_by(60)
        assert await rig.state("large") == ("running", move.source)
        await rig.check()

    run(database_url, test)


def test_a_dry_run_names_moves_only_when_asked_and_to_nobody_of_one_project(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await fragmented(rig)
        assert (await dry_run(rig)).after_moves is None
        assert (await dry_run(rig, MEMBER, moves=True)).after_moves is None
        found = (await dry_run(rig, moves=True)).after_moves
        assert found is not None
        assert len(found.moves) == 1

    run(database_url, test)


def test_nobody_waits_for_a_plan_to_be_told_moves(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await fragmented(rig)
        await rig.create("large", cpu=4, on_no_fit="queue")
        planning = rig.plane.vms.names_moves._planning  # type: ignore[union-attr]
        async with planning._long.turn():  # somebody drafts a plan, for minutes
            assert (await dry_run(rig, moves=True)).after_moves is None
            told = (await rig.plane.vms.explain("large", None, (), OPERATOR)).answer
            assert isinstance(told, RejectionBody)
            assert told.after_moves is None
        # Who asks about single hosts is not shown it, and does not cause the search.
        told = (await rig.plane.vms.explain("large", None, ("a",), OPERATOR)).answer
        assert isinstance(told, RejectionBody)
        assert told.after_moves is None

    run(database_url, test)


def test_nothing_is_named_where_no_move_helps(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in "ab":
            await rig.host(name, cpu=4, memory=8)
            await rig.running(f"vm-{name}", cpu=3)
        assert (await dry_run(rig, moves=True)).after_moves is None

    run(database_url, test)


def test_the_commands_that_an_explanation_prints_make_the_room(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Six VMs of a core on `a`, which has eight; the other two hosts are empty.
    async def test(rig: Rig) -> None:
        asked = ("explain", "--name", "large", "--cpu", "4", "--memory", "1GiB", "--pin", "a")
        told = await says(rig, *asked)
        assert "fits on a after 2 moves: " in told
        commands = re.findall(r"try: roost (vm migrate vm-\d --to \w --project default)", told)
        assert len(commands) == 2
        for command in commands:
            await says(rig, *shlex.split(command))
        await rig.pass_by(30)
        assert "large goes to a" in await says(rig, *asked)

    typed(sqlite_url, monkeypatch, test)
