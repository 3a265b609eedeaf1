"""`roost policy` as an administrator types it, against a control plane that is served."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire.bodies import CreateToken
from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_group_api import served
from tests.integration.control.test_policies import SSD, fleet


async def says(*words: str, code: int = 0) -> str:
    """Run a command of `roost policy`; return what it prints, each run of blanks as one."""
    found = await asyncio.to_thread(CliRunner().invoke, app, ["policy", *words])
    assert found.exit_code == code, f"{words}\n{found.output}"
    return " ".join(found.output.split())


def typed(
    url: str, monkeypatch: pytest.MonkeyPatch, test: Callable[[Rig], Awaitable[None]]
) -> None:
    """Run a test that types commands as an administrator, on a fleet of four hosts."""

    async def with_server(rig: Rig) -> None:
        await fleet(rig)
        async with served(rig) as clients:
            monkeypatch.setenv("ROOST_SERVER", (await clients("viewer")).server)
            asked_for = CreateToken(name="root", role="admin")
            made = await rig.plane.access.create_token(asked_for, ADMIN)
            monkeypatch.setenv("ROOST_TOKEN", made.secret or "")
            monkeypatch.setenv("COLUMNS", "200")
            await test(rig)
        await rig.settle()

    run(url, with_server)


def test_a_policy_is_made_shown_compared_and_rolled_back(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        made = await says(
            "create", "databases", "--strategy", "best_fit", "--weights", "cpu=1,memory=3",
            "--rule", f"ssd={SSD}", "--prefer", "empty:0.5=host.vms < 3", "--spread", "rack",
            "--overcommit", "cpu=1.5", "--preemption", "never", "--restart", "elsewhere",
        )  # fmt: skip
        for part in (
            "strategy best_fit", "weights cpu 1, disk 0, memory 3", "overcommit cpu 1.5",
            "spread over racks, soft", "preemption never", "restart elsewhere", "version 1",
            f"ssd hard {SSD}", "empty soft 0.5 host.vms < 3",
        ):  # fmt: skip
            assert part in made, made
        await says("change", "databases", "--weights", "none", "--preemption", "lower")
        differs = await says("diff", "databases")
        assert "preemption never lower" in differs
        assert "weights" in differs
        assert "ssd" not in differs
        await says("rollback", "databases", "--to", "1")
        assert "say the same" in await says("diff", "databases", "--from", "1", "--to", "3")
        shown = await says("show", "databases", "-o", "json")
        assert json.loads(shown)["version"] == 3
        assert "is deleted" in await says("delete", "databases")
        assert "no policy 'databases'" in await says("show", "databases", code=3)

    typed(sqlite_url, monkeypatch, test)


def test_a_dry_run_says_who_would_be_elsewhere_and_who_is_in_the_wrong_place(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await rig.running("one", cpu=2)
        told = await says("dry-run", "databases", "--project", "default", "--rule", f"ssd={SSD}")
        assert "1 of the last 1 requests are under the policy" in told
        assert "one default a c" in told
        assert f"one default a policy:databases/ssd {SSD}" in told
        assert "there is no policy" in await says("show", "databases", code=3)
        none = await says("dry-run", "databases", "--project", "default", "--rule", "no=false")
        assert "one default a refused" in none
        assert (await rig.get("one")).host == "a"
        assert "under policy" in await _applied("default")
        assert (await rig.create("two")).host == "c"

    typed(sqlite_url, monkeypatch, test)


async def _applied(project: str) -> str:
    await says("create", "databases", "--rule", f"ssd={SSD}")
    return await says("apply", project, "--policy", "databases")


def test_what_is_typed_wrong_is_named(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def test(_: Rig) -> None:
        for message, words in (
            ("--weights takes cpu, memory, disk", ("--weights", "gpu=1")),
            ("--spread is host, rack or zone", ("--spread", "row")),
            ("--preemption is never or lower", ("--preemption", "always")),
            ("--rule takes NAME=EXPRESSION", ("--rule", "ssd")),
            ("--prefer takes NAME:WEIGHT=EXPRESSION", ("--prefer", "ssd=true")),
        ):
            assert message in await says("create", "odd", *words, code=2)
        text = tmp_path / "odd.yaml"
        text.write_text("strategy: best_fit\nwieghts: {cpu: 1}\n")
        assert "wieghts" in await says("create", "odd", "--file", str(text), code=2)
        clash = ("--rule", 'a=host.zone == "a"', "--rule", 'b=host.zone == "b"')
        told = await says("create", "odd", *clash, code=4)
        assert "'policy:odd/a' and 'policy:odd/b' contradict each other" in told
        assert "by --policy NAME, or --none" in await says("apply", "default", code=2)

    typed(sqlite_url, monkeypatch, test)
