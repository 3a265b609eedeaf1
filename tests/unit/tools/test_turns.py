"""Cases that take turns: one of so many, each in some turn, and the end says how many wait."""

import os
import subprocess
import sys
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.turns import SEEDS, drawn, draws_in_turn, has_turn, in_turn

_ROOT = Path(__file__).parents[3]
_FILE = """
import pytest

@pytest.mark.turns(3)
@pytest.mark.parametrize("case", range(6))
def test_slow(case): pass

def test_quick(): pass
"""


def turns_that_draw(rest: int, of: int) -> str:
    """Return the name of a turn that leaves this rest."""
    return next(f"{n}" for n in count() if drawn(f"{n}") % of == rest)


def test_every_case_has_its_turn_once_among_three() -> None:
    keys = [("a.py", 3), ("b.py", 1), ("a.py", 3), ("b.py", 3), ("a.py", 3), ("a.py", 3)]
    runs = [list(has_turn(keys, turns_that_draw(rest, 3))) for rest in range(3)]
    times = [sum(each) for each in zip(*runs, strict=True)]
    assert times == [1, 3, 1, 1, 1, 1]


def test_parameters_are_thinned_to_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    for turn in islice(count(), 40):
        monkeypatch.setenv("TURN", f"{turn}")
        chosen = in_turn(range(7), 2)
        assert len(chosen) == 2
        seen.update(chosen)
    assert seen == set(range(7))
    monkeypatch.setenv("TURN", "")
    assert list(in_turn(range(7), 2)) == list(range(7))


def examples(turn: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what a property of nine examples draws in a turn."""
    monkeypatch.setenv("TURN", turn)
    seen: list[int] = []

    @draws_in_turn(9)
    @given(st.integers(0, 2**40))
    def prop(number: int) -> None:
        seen.append(number)

    prop()
    return seen


def test_a_property_draws_a_third_from_one_of_three_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [turns_that_draw(rest, SEEDS) for rest in range(SEEDS)]
    drawn_by = [examples(turn, monkeypatch) for turn in turns]
    assert [len(each) for each in drawn_by] == [3, 3, 3]
    assert len({tuple(each) for each in drawn_by}) == SEEDS
    assert examples(turns[0], monkeypatch) == drawn_by[0]
    assert len(examples("", monkeypatch)) == 9


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_end_says_how_many_wait(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_some.py").write_text(_FILE)
    options = ["-p", "xdist", "-p", "tests.turns", "-n", processes, "-c", os.devnull]
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(_ROOT)}

    def run(turn: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(tmp_path)],
            env=os.environ | quick | {"TURN": turn}, cwd=tmp_path,
            capture_output=True, text=True, timeout=60, check=False,
        ).stdout  # fmt: skip

    told = run("some-commit")
    assert "turns: of 6 cases that take turns 4 wait for other commits (TURN=some-commit;" in told
    assert "3 passed" in told
    assert "7 passed" in run("")
