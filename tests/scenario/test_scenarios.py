"""Golden cases: a fleet that a person can type, commands, and what they print.

Three kinds of lines in a case, all comments to roost itself (README.md says more):

    #$ roost ...    a command, run on this file
    #= text         worked out by hand: the command above must print a line with this text
    # text          what the case shows, and why

The .expect file beside a case holds all that its commands print. `make goldens` rewrites those
files and never the `#=` lines, so an answer that was worked out by hand cannot be rewritten away.
A Ganeti file has no comments: its lines are in the .ask file of the same name.
"""

import shlex
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from roost.model.reasons import Reason
from roost.placement.strategies import STRATEGIES

HERE = Path(__file__).parent
SCENARIOS = sorted([*HERE.rglob("*.fleet"), *HERE.rglob("*.data")])
COMMAND, BY_HAND = "#$ roost ", "#= "
#: No text says a compiled constraint: only a program hands one over. Rules and the network are a
#: server's.
UNSAYABLE = {
    Reason.PRESSURE,
    Reason.PREDICATE,
    Reason.RULE,
    Reason.RULE_ERROR,
    Reason.LATENCY,
    Reason.BANDWIDTH,
}


@dataclass(frozen=True, slots=True)
class Question:
    """A command with the answers that were worked out by hand."""

    command: str
    by_hand: list[str] = field(default_factory=list)


@cache
def answer(command: str, fleet: Path) -> str:
    """Run a command on a fleet and return all that it prints, errors too."""
    words = [*shlex.split(command), "--fleet", str(fleet)]
    environment = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    result = CliRunner().invoke(app, words, env=environment)
    lines = [line.rstrip() for line in (result.stdout + result.stderr).splitlines()]
    told = [f"$ roost {command}", *lines, f"exit {result.exit_code}"]
    return "".join(f"{line}\n" for line in told).replace(str(fleet), fleet.name)


def lines_about(fleet: Path) -> list[str]:
    """Return the lines that hold the questions about a fleet."""
    asked = fleet if fleet.suffix == ".fleet" else fleet.with_suffix(".ask")
    return asked.read_text().splitlines()


def questions(fleet: Path) -> list[Question]:
    """Return the commands of a case in their order."""
    found: list[Question] = []
    for line in lines_about(fleet):
        if line.startswith(COMMAND):
            found.append(Question(line.removeprefix(COMMAND)))
        elif line.startswith(BY_HAND):
            found[-1].by_hand.append(line.removeprefix(BY_HAND))
    return found


def one_spaced(text: str) -> str:
    """Return a line as it reads without the columns of its table."""
    return " ".join(text.split())


def case_name(fleet: Path) -> str:
    """Return the name of a case: its folder and file."""
    return f"{fleet.parent.name}/{fleet.stem}"


@pytest.mark.parametrize("fleet", SCENARIOS, ids=case_name)
def test_the_commands_print_what_is_expected(fleet: Path, request: pytest.FixtureRequest) -> None:
    expected = fleet.with_suffix(".expect")
    told = "\n".join(answer(question.command, fleet) for question in questions(fleet))
    if request.config.getoption("--rewrite-goldens"):
        expected.write_text(told)
    assert told == expected.read_text()


@pytest.mark.parametrize("fleet", SCENARIOS, ids=case_name)
def test_the_answers_are_those_worked_out_by_hand(fleet: Path) -> None:
    for question in questions(fleet):
        told = answer(question.command, fleet)
        lines = [one_spaced(line) for line in told.splitlines()[1:]]  # the first is the command
        missing = [each for each in question.by_hand if not any(each in line for line in lines)]
        assert not missing, told


@pytest.mark.parametrize("fleet", SCENARIOS, ids=case_name)
def test_every_case_says_what_it_shows_and_has_answers_by_hand(fleet: Path) -> None:
    assert lines_about(fleet)[0].startswith("# ")
    assert questions(fleet)
    assert all(question.by_hand for question in questions(fleet))


def test_every_expected_answer_has_its_case() -> None:
    assert {path.with_suffix("") for path in HERE.rglob("*.expect")} == {
        path.with_suffix("") for path in SCENARIOS
    }


def test_every_reason_refuses_somewhere() -> None:
    by_hand = {
        each.split(" ")[0]
        for fleet in SCENARIOS
        for question in questions(fleet)
        for each in question.by_hand
    }
    assert {reason for reason in Reason if reason.value not in by_hand} == UNSAYABLE


def test_every_strategy_decides_somewhere() -> None:
    told = "".join(path.read_text() for path in HERE.rglob("*.expect"))
    assert [name for name in STRATEGIES if f"({name}, score" not in told] == []
