"""docs/how-to/rules.md is true: its commands are run as they stand, on the fleet it speaks of."""

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire.bodies import CreateToken
from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_group_api import served

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "rules.md"


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the page, and the lines that it is said to print.

    What depends on the moment stands in a block of another kind than `text`.
    """
    command, printed, inside = "", [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    roost "):
            if command:
                yield command, printed
            command, printed = line.strip(), []
        elif line.startswith("```"):
            inside = line == "```text"
        elif inside and line.strip():
            printed.append(line)
    yield command, printed


def words(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines if line.strip() and "─" not in line]


def test_the_page_says_what_the_commands_print(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list(commands())
    assert sum(bool(printed) for _, printed in said) == 2
    assert len(said) >= 12

    async def test(rig: Rig) -> None:
        for name in ("h1", "h2", "h3"):
            await rig.host(name)
        await rig.running("db-1", labels={"tier": "db"})
        async with served(rig) as clients:
            monkeypatch.setenv("ROOST_SERVER", (await clients("viewer")).server)
            asked_for = CreateToken(name="root", role="admin")
            made = await rig.plane.access.create_token(asked_for, ADMIN)
            monkeypatch.setenv("ROOST_TOKEN", made.secret or "")
            monkeypatch.setenv("COLUMNS", "200")
            for command, printed in said:
                asked = shlex.split(command)[1:]
                found = await asyncio.to_thread(CliRunner().invoke, app, asked)
                assert found.exit_code == 0, f"{command}\n{found.output}"
                told = words(found.output.splitlines())
                assert all(line in told for line in words(printed)), f"{command}\n{found.output}"
        await rig.settle()

    run(sqlite_url, test)
