"""How planted mistakes are looked for: no world is waited for for ever, nor taken at its print."""

import sys

import pytest

from tests.sim.finding import Finder, Question

_PROGRAM = """
import signal, sys
from types import SimpleNamespace
from tests.sim import finding

def run(history):
    {world}
    return SimpleNamespace(broken="a law")

finding.run_history = run
finding.answer_in_forks(int(sys.argv[1]))
"""
QUESTION = Question("off by one", [3, 4], 0, written=False)


def finder(world: str) -> Finder:
    """Return a finder whose worlds do this."""
    return Finder((sys.executable, "-c", _PROGRAM.format(world=world)))


def test_what_a_world_prints_is_no_answer() -> None:
    found = finder('print("{}", flush=True)').find(QUESTION)
    assert (found.worlds, found.found, found.first) == (2, 2, 3)


def test_a_world_that_does_not_end_is_not_waited_for() -> None:
    asked = finder("signal.pause() if history.seed == 4 else None")
    ends = Question(QUESTION.mistake, [3], 0, written=False)
    assert asked.find(ends).found == 1
    patience_s, asked.world_s = asked.world_s, 2.0
    with pytest.raises(AssertionError, match="takes longer than 2 s"):
        asked.find(QUESTION)
    asked.world_s = patience_s
    assert asked.find(ends).found == 1  # it was started anew


def test_a_world_that_raises_is_told_with_its_last_words() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        finder("1 / 0").find(QUESTION)
