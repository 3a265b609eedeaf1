"""What worlds have found once stays mended: their histories hold every law."""

from collections.abc import Callable

import pytest

from roost.sim.histories.history import Action, History
from roost.sim.world import run_history
from tests.sim.written import WRITTEN


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("written", WRITTEN.values(), ids=lambda each: each.__name__)
def test_every_law_holds_in_the_history(written: Callable[[int], History], seed: int) -> None:
    verdict = run_history(written(seed))
    assert verdict.broken == ""
    assert verdict.faults > 0


def test_a_plane_that_is_started_before_its_database_answers_comes_up() -> None:
    actions = [
        Action(0.0, "create", "web", {"cpu": 1, "restart": "elsewhere"}),
        Action(10.0, "kill_plane", "plane0", {"for": 20.0}),
        Action(30.0, "lose_database", "plane0", {"for": 0.6}),
    ]
    verdict = run_history(History(1, hosts=2, planes=1, calm_s=120.0, actions=actions))
    assert verdict.broken == ""
    assert verdict.coverage["exit"] == 1
