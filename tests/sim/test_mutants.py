"""Every planted mistake is found by a campaign of a few worlds, and it is told how soon.

The worlds are those of `roost sim`, drawn from seeds. `python -m tests.sim.test_mutants` looks for
all of them and prints in which seed each was found; the test looks at the seeds that found one when
it was written first, and then on from the beginning.
"""

import pytest

from roost.sim.history import draw_history
from roost.sim.world import run_history
from tests.sim.mutants import MUTANTS

#: Worlds that are tried before a mistake counts as missed.
MOST_SEEDS = 40


def found_at(name: str, seeds: list[int]) -> int | None:
    """Return the first seed whose world breaks a law with this mistake planted."""
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        for seed in seeds:
            if run_history(draw_history(seed)).broken:
                return seed
    return None
