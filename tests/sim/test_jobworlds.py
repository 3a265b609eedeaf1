"""Worlds of jobs hold every law, run the same way again, and find every planted mistake."""

import pytest

from roost.sim.rented.jobworld import run_job_world
from tests.sim.jobmutants import MUTANTS

#: A mistake, and a seed whose world breaks a law with it.
FOUND_AT = dict.fromkeys(MUTANTS, 0) | {
    "half a funeral": 1,
    "cancelling is final": 1,
    "eager sweep": 1,
    "whose fault": 1,
}
MOST_WORLDS = 12


@pytest.mark.turns(12)
@pytest.mark.parametrize("seed", range(12))
def test_every_law_holds_in_a_storm_and_after_it(seed: int) -> None:
    found = run_job_world(seed)
    assert not found.broken, "\n".join([*found.tail[-60:], found.broken])
    assert found.jobs > 20
    assert found.faults > 5


@pytest.mark.turns(6)
def test_a_world_runs_the_same_way_again() -> None:
    assert run_job_world(3).digest == run_job_world(3).digest


@pytest.mark.turns(12)
@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mistake](monkeypatch)
    first = FOUND_AT[mistake]
    broken = ""
    for seed in range(first, first + MOST_WORLDS):
        if broken := run_job_world(seed).broken:
            print(f"{mistake}: seed {seed}: {broken}")
            break
    assert broken
