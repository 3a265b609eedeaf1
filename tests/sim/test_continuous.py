"""Continuous mode in simulated worlds: two planners that die and freeze, and nobody is chased.

Only worlds of one scenario have it: those that are drawn from seeds alone stay as they are.
"""

from collections.abc import Callable

import pytest

from roost.control.plans import continuous, gathering
from roost.control.plans.daymoves import DayMoves
from roost.sim.histories.draws import draw_history
from roost.sim.histories.scenarios import find_scenario, read_scenario
from roost.sim.histories.workloads import expand
from roost.sim.laws.planned import Plan, PlannedMoves
from roost.sim.world import Verdict, run_history
from tests.sim.test_plan_laws import move, told

SCENARIO = read_scenario(find_scenario("self-balancing"))
#: Worlds that are tried before a mistake counts as missed; nearly every one finds it.
MOST_WORLDS = 10
#: A quarter of an hour is enough to see that it moves VMs and breaks nothing.
QUARTER_S = 900.0
Patch = pytest.MonkeyPatch


def world(seed: int) -> Verdict:
    return run_history(expand(SCENARIO, seed))


def no_rest(patch: Patch) -> None:
    """no rest: nobody asks when a VM was moved last"""
    patch.setattr(gathering, "resting", lambda _moves, _now: "")


def no_day(patch: Patch) -> None:
    """no day: nobody counts how often a VM was moved in a day"""
    patch.setattr(DayMoves, "held", lambda _self, _limits: {})


def not_asked(patch: Patch) -> None:
    """not asked: it plans while an operator's plan is open"""
    patch.setattr(continuous, "_busy", lambda _connection: "")


def test_a_fleet_is_evened_by_itself_and_every_law_holds() -> None:
    history = expand(SCENARIO, 0)
    history.length_s = QUARTER_S
    history.actions = [each for each in history.actions if each.at < QUARTER_S]
    verdict = run_history(history)
    assert verdict.broken == ""
    assert verdict.coverage["commit.plan.move_begun"] >= 4


@pytest.mark.turns(3)
@pytest.mark.parametrize("mistake", [no_rest, no_day, not_asked], ids=lambda each: each.__name__)
def test_a_mistake_in_it_is_found(
    mistake: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    broken = (world(seed).broken for seed in range(1, 1 + MOST_WORLDS))
    law = next((each for each in broken if each), "")
    words = {no_rest: "s after", no_day: "times in a day", not_asked: "while another is open"}
    assert words[mistake] in law


def test_worlds_that_are_drawn_have_none_of_it() -> None:
    assert {draw_history(seed).continuous for seed in range(40)} == {0.0}


ASKED = '{"per_host": 4, "at_once": 8}'


def runs(author: str = "continuous") -> Plan:
    return Plan("running", ASKED, None, author)


def moved(laws: PlannedMoves, plan: str, author: str, begun_ms: int, ended_ms: int) -> str:
    """Let a plan of somebody move one VM; return what is wrong."""
    here = move(1, "running")
    here.plan, here.begun_ms = plan, begun_ms
    wrong = laws.apply({plan: runs(author)}, {f"{plan}|1": here})
    wrong = wrong or laws.check({here.vm: ("preparing", here.target)})
    done = move(1, "done")
    done.plan, done.begun_ms, done.ended_ms = plan, begun_ms, ended_ms
    over = runs(author)
    over.state = "done"
    return wrong or laws.apply({plan: over}, {f"{plan}|1": done}) or laws.check({})


def test_an_operator_moves_a_vm_again_and_nobody_else_does_so_soon() -> None:
    laws = PlannedMoves()
    assert moved(laws, "p", "continuous", 0, 1_000) == ""
    assert moved(laws, "q", "admin", 2_000, 3_000) == ""
    assert "599 s after vm1 was moved" in moved(laws, "r", "continuous", 602_000, 603_000)


def test_a_vm_is_moved_by_two_plans_in_a_day_and_a_day_later_again() -> None:
    laws = PlannedMoves()
    assert moved(laws, "p", "continuous", 0, 0) == ""
    assert moved(laws, "q", "continuous", 3_600_000, 3_600_000) == ""
    assert moved(laws, "r", "continuous", 86_400_000, 86_400_000) == ""
    assert "was moved 2 times in a day" in moved(laws, "s", "continuous", 87_400_000, 87_400_000)


def test_a_plan_that_nobody_asked_for_waits_for_others_and_a_draft_is_none() -> None:
    laws = PlannedMoves()
    assert laws.apply({"p": Plan("paused", ASKED, None, "admin")}, {}) == ""
    assert laws.apply({"q": Plan("planned", ASKED, None, "continuous")}, {}) == ""
    wrong = laws.apply({"r": Plan("waiting", ASKED, None, "continuous")}, {})
    assert wrong == "r was made by nobody while another is open"
    assert told(PlannedMoves(), runs(), move(1, "running")) == ""
