"""What worlds have found once stays mended: their histories hold every law."""

from collections.abc import Callable

import pytest

from roost.sim.history import History
from roost.sim.world import run_history
from tests.sim.written import WRITTEN


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("written", WRITTEN.values(), ids=lambda each: each.__name__)
def test_every_law_holds_in_the_history(written: Callable[[int], History], seed: int) -> None:
    verdict = run_history(written(seed))
    assert verdict.broken == ""
    assert verdict.faults > 0
