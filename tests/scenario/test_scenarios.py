"""Golden cases: a fleet that a person can type, commands, and what they print.

Every line of a .fleet file that begins with `#$ roost` is a command; the .expect file beside it
holds what the commands print. `make goldens` rewrites the .expect files: read the diff.
"""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.cli.main import app

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.rglob("*.fleet"))
COMMAND = "#$ roost "


def transcript(fleet: Path) -> str:
    """Run the commands of a fleet file and return all that they print."""
    told = []
    for line in fleet.read_text().splitlines():
        if line.startswith(COMMAND):
            words = shlex.split(line.removeprefix(COMMAND))
            environment = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
            result = CliRunner().invoke(app, [*words, "--fleet", str(fleet)], env=environment)
            output = "\n".join(part.rstrip() for part in result.stdout.splitlines())
            told.append(
                f"$ roost {line.removeprefix(COMMAND)}\n{output}\nexit {result.exit_code}\n"
            )
    return "\n".join(told).replace(str(fleet), fleet.name)


@pytest.mark.parametrize("fleet", SCENARIOS, ids=lambda path: path.stem)
def test_the_commands_print_what_is_expected(fleet: Path, request: pytest.FixtureRequest) -> None:
    expected = fleet.with_suffix(".expect")
    told = transcript(fleet)
    if request.config.getoption("--rewrite-goldens"):
        expected.write_text(told)
    assert told == expected.read_text()


def test_every_scenario_has_commands() -> None:
    assert SCENARIOS
    assert all(COMMAND in fleet.read_text() for fleet in SCENARIOS)
