"""Worlds of jobs hold every law, run the same way again, and find every planted mistake.

Each runs in a process of its own in which words have a fixed order, so that a seed is one world.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.sim.rented.jobworld import run_job_world
from tests.sim.jobmutants import MUTANTS

ROOT = Path(__file__).parents[2]
#: Mistakes whose seed is not 0: the first world that breaks a law with it.
FOUND_AT = {
    "no fence": 4,
    "half a funeral": 1,
    "eager sweep": 1,
    "no sweep": 14,
    "cancelling is final": 7,
    "whose fault": 1,
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.turns(12)
@pytest.mark.parametrize("seed", range(12))
def test_every_law_holds_in_a_storm_and_after_it(seed: int) -> None:
    done = run("roost.sim.rented.jobworld", "--seeds", "1", "--first", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every law held" in done.stdout


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(6))
def test_every_law_holds_where_limits_are_lowered(seed: int) -> None:
    done = run("roost.sim.rented.jobworld", "--lowering", "--seeds", "1", "--first", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every law held" in done.stdout


@pytest.mark.turns(6)
def test_a_world_runs_the_same_way_again() -> None:
    assert run_job_world(0).digest == run_job_world(0).digest


def test_ten_mistakes_are_planted_at_least() -> None:
    assert len(MUTANTS) >= 10
    assert FOUND_AT.keys() <= MUTANTS.keys()


@pytest.mark.turns(11)
@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    done = run("tests.sim.jobmutants", mistake, str(FOUND_AT.get(mistake, 0)))
    assert done.returncode == 0, done.stderr
    assert done.stdout, "every law held"
