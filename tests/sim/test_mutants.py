"""Planted mistakes are found by a campaign of a few worlds.

The worlds are those of `roost sim`, drawn from seeds. Each mistake names a seed whose world breaks
a law with it; if worlds are drawn differently one day, the search goes on from there.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from roost.sim.campaign import fixed_environment
from roost.sim.draws import draw_history
from roost.sim.world import run_history
from tests.sim.mutants import MUTANTS

#: Worlds that are tried before a mistake counts as missed.
MOST_WORLDS = 12
#: A mistake, by how its description begins, and a seed that finds it.
FOUND_AT = {
    "forgotten re-check": 2,
    "absolute write": 0,
    "lost tombstone": 1,
    "lease counted from receipt": 0,
    "double release": 0,
    "off by one": 7,
    "ack before commit": 0,
    "missing fence": 1,
}


def first_found(mistake: str, first: int) -> int | None:
    """Return the first seed whose world breaks a law with this mistake planted."""
    plant = next(each for name, each in MUTANTS.items() if name.startswith(mistake))
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in range(first, first + MOST_WORLDS):
            if run_history(draw_history(seed)).broken:
                return seed
    return None


@pytest.mark.parametrize("mistake", FOUND_AT)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    # In a process of its own, with a fixed order of sets, so that a seed is the same world again.
    code = (
        "import sys; from tests.sim.test_mutants import first_found;"
        "print(first_found(sys.argv[1], int(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, mistake, str(FOUND_AT[mistake])]
    done = subprocess.run(
        command, env=fixed_environment(), cwd=Path.cwd(), capture_output=True, check=True
    )
    assert done.stdout.strip() != b"None"
