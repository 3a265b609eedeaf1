"""The search's kernels say what the plain twins say, and never leave a legal placement."""

import numpy as np
import pytest

from roost.planner.kernels.annealing import anneal
from roost.planner.kernels.choosing import choose
from roost.planner.kernels.descending import descend, take_back
from roost.planner.kernels.ruining import ruin
from roost.planner.kernels.tables import COST, FORBIDDEN, State
from roost.planner.kernels.trials import ask
from roost.planner.layout import cost_of, facts_of, state_of
from roost.planner.search import Search, chosen_of, hand_of
from tests.naive import planner as naive
from tests.property.problems import random_problem

pytestmark = pytest.mark.kernel

ODDS = -np.log((np.arange(64) + 0.5) / 64)
SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_cost_from_scratch_equals_the_twin(seed: int) -> None:
    problem = random_problem(seed)
    place = np.random.default_rng(seed).integers(0, problem.hosts, problem.vms).astype(np.int32)
    assert cost_of(problem, place) == naive.cost(problem, place)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_costs_what_the_twin_says_and_is_forbidden_where_it_says(seed: int) -> None:
    problem = random_problem(seed, vms=8, hosts=4, fill=0.3)
    facts = facts_of(problem)
    state = state_of(problem, facts, problem.start, seed)
    before = naive.cost(problem, problem.start)
    for vm in range(problem.vms):
        for other in range(-1, problem.vms):
            targets = range(problem.hosts) if other < 0 else [int(problem.start[other])]
            for there in targets:
                if there == problem.start[vm]:
                    continue
                after = problem.start.copy()
                after[vm] = there
                if other >= 0:
                    after[other] = problem.start[vm]
                delta = ask(facts, state, vm, there, other)
                if naive.legal(problem, after):
                    assert delta == naive.cost(problem, after) - before, (vm, there, other)
                else:
                    assert delta == FORBIDDEN, (vm, there, other)


def same_as_fresh(problem, facts, state: State) -> bool:  # type: ignore[no-untyped-def]
    fresh = state_of(problem, facts, state.place, 0)
    chains = ("first", "after", "before", "sums")
    sums = {name: getattr(state, name) for name in State._fields if name not in chains}
    return all(np.array_equal(sums[name], getattr(fresh, name)) for name in sums)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_keeps_its_sums_and_every_hard_rule(seed: int) -> None:
    problem = random_problem(seed, fill=0.3)
    facts, hand = facts_of(problem), hand_of(problem)
    state = state_of(problem, facts, problem.start, seed)
    for heat in (1000.0, 10.0, 0.0):
        anneal(facts, state, 300, heat, ODDS, 512)
        assert same_as_fresh(problem, facts, state)
        ruin(facts, state, hand, 30, heat, ODDS, 2)
        assert same_as_fresh(problem, facts, state)
        assert not hand.taken.any()
        descend(facts, state)
        take_back(facts, state)
        assert int(state.sums[COST]) == naive.cost(problem, state.place)
        assert naive.legal(problem, state.place)
        assert (state.place == problem.start)[problem.fixed].all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_choice_of_few_moves_keeps_its_list_its_sums_and_every_hard_rule(seed: int) -> None:
    problem = random_problem(seed, fill=0.3)
    facts, chosen = facts_of(problem), chosen_of(problem, 3)
    state = state_of(problem, facts, problem.start, seed)
    for heat in (1000.0, 10.0, 0.0):
        choose(facts, state, chosen, 300, heat, ODDS)
        away = np.flatnonzero(state.place != problem.start).tolist()
        assert len(away) <= 3
        assert sorted(chosen.vm[: chosen.how_many[0]].tolist()) == away
        assert [chosen.vm[chosen.at[vm]] for vm in away] == away
        assert np.count_nonzero(chosen.at >= 0) == len(away)
        assert same_as_fresh(problem, facts, state)
        assert int(state.sums[COST]) == naive.cost(problem, state.place)
        assert naive.legal(problem, state.place)
        assert (state.place == problem.start)[problem.fixed].all()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_numbers_stay_in_their_range(seed: int) -> None:
    search = Search(random_problem(seed), seed)
    drawn = []
    for _ in range(50):
        search.run(1.0, 1)
        drawn.append(int(search.state.sums[2]))
    assert min(drawn) > 0
    assert len(set(drawn)) == len(drawn)
