"""`roost maintenance` and the forecast of a drain, as an operator types them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire.bodies import ConstraintsBody, CreateToken
from roost.wire.plans import ListPlans
from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_group_api import served


async def says(rig: Rig, *words: str, code: int = 0) -> str:
    """Run a command while time passes; return what it prints, each run of blanks as one."""
    typed = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, app, [*words]))
    while not typed.done():
        await rig.pass_by(2)
        await asyncio.sleep(0.05)
    found = await typed
    assert found.exit_code == code, f"{words}\n{found.output}"
    return " ".join(found.output.split())


def typed(
    url: str, monkeypatch: pytest.MonkeyPatch, test: Callable[[Rig], Awaitable[None]]
) -> None:
    """Run a test that types commands, on three hosts with two VMs each."""

    async def with_server(rig: Rig) -> None:
        for name in ("a", "b", "c"):
            await rig.host(name, cpu=8, memory=8)
        for number in range(6):
            where = ConstraintsBody(hosts=["a", "b", "c"])
            await rig.running(f"vm-{number}", constraints=where)
        async with served(rig) as clients:
            monkeypatch.setenv("ROOST_SERVER", (await clients("viewer")).server)
            asked = CreateToken(name="root", role="admin")
            made = await rig.plane.access.create_token(asked, ADMIN)
            monkeypatch.setenv("ROOST_TOKEN", made.secret or "")
            monkeypatch.setenv("COLUMNS", "200")
            await test(rig)

    run(url, with_server)


def test_maintenance_rolls_over_all_hosts_and_each_is_empty_when_its_turn_comes(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def test(rig: Rig) -> None:
        told = await says(rig, "maintenance", "plan", "--at-once", "1")
        assert "a" in told
        log = tmp_path / "turns"
        command = f'echo "$ROOST_HOST" >> {log}'
        told = await says(rig, "maintenance", "run", "--at-once", "1", "--command", command)
        assert "3 hosts are done" in told
        assert log.read_text().split() == ["a", "b", "c"]
        assert {each.row.admin for each in rig.plane.roster.hosts.values()} == {"open"}
        assert [(await rig.state(f"vm-{n}"))[0] for n in range(6)] == ["running"] * 6

    typed(sqlite_url, monkeypatch, test)


def test_a_command_that_fails_stops_the_roll_with_its_host_in_maintenance(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        words = ("maintenance", "run", "--at-once", "1", "--command", '[ "$ROOST_HOST" != b ]')
        told = await says(rig, *words, code=4)
        assert "the command for b ended with 1" in told
        assert "1 hosts are done, 2 are left" in told
        states = {each.name: each.row.admin for each in rig.plane.roster.hosts.values()}
        assert states == {"a": "open", "b": "maintenance", "c": "open"}

    typed(sqlite_url, monkeypatch, test)


def test_a_group_with_more_vms_than_a_plan_may_move_is_emptied_by_several(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.wire.plans.MOST_MOVES", 1)

    async def test(rig: Rig) -> None:
        told = await says(rig, "maintenance", "run", "a", "--command", "true")
        assert "1 hosts are done" in told
        found = (await rig.plane.plans.list(ListPlans())).plans
        ends = sorted((each.state, each.done, each.blockers) for each in found)
        assert ends == [("done", 1, left) for left in range(6)]

    typed(sqlite_url, monkeypatch, test)


def admins(rig: Rig) -> dict[str, str]:
    return {each.name: each.row.admin for each in rig.plane.roster.hosts.values()}


def test_hosts_of_a_group_that_nothing_was_done_to_are_opened_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = ("maintenance", "run", "a", "b", "--at-once", "2", "--no-spare", "--command")

    async def test(rig: Rig) -> None:
        told = await says(rig, *two, "exit 3", code=4)
        assert "a, b: " in told  # they are away together
        assert "the command for a ended with 3; it is in maintenance" in told
        assert "b is open again: nothing was done to it" in told
        assert admins(rig) == {"a": "maintenance", "b": "open", "c": "open"}
        await says(rig, "host", "maintenance", "off", "a")

        async def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("roost.cli.watch.planwatch.watch_plan", interrupted)
        await says(rig, *two, "true", code=130)
        assert admins(rig) == dict.fromkeys("abc", "open")
        [last, *_] = (await rig.plane.plans.list(ListPlans())).plans
        assert last.state in ("cancelled", "done")

    typed(sqlite_url, monkeypatch, test)


def test_a_drain_says_before_how_long_it_takes_and_what_cannot_leave(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await rig.running("vm-7", constraints=ConstraintsBody(hosts=["a"]))
        told = await says(rig, "host", "drain", "a", "--dry-run", code=1)
        assert "vm-7" in told
        assert rig.plane.roster.entry("a").row.admin == "open"  # type: ignore[union-attr]
        told = await says(rig, "host", "drain", "a")
        assert "vm-7 cannot leave: no other host fits: not pinned on 2 hosts" in told
        told = await says(rig, "maintenance", "plan", "a", "--no-spare", code=1)
        assert "a is left out: vm-7 cannot leave" in told

    typed(sqlite_url, monkeypatch, test)
