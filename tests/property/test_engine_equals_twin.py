"""Where a VM goes is exactly where a plain loop over all hosts would put it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.placement.strategies import STRATEGIES
from tests.naive.engine import CELL_RULES
from tests.property.filing import rankings_are_sound
from tests.property.laws import (
    FOCI,
    SEEDS,
    batch_equals_singles,
    columns_equal_singles,
    engine_equals_twin,
    examples,
    explained_batch_equals_singles,
    long_lived_engine_equals_twin,
    search_equals_scores,
    snapshot_stands_apart,
)


@examples(40)
@given(seed=SEEDS, hosts=st.integers(1, 60), focus=FOCI)
def test_a_fresh_engine_equals_the_twin_for_every_strategy(
    seed: int, hosts: int, focus: str
) -> None:
    engine_equals_twin(seed, hosts, focus)


@examples(40)
@given(seed=SEEDS, hosts=st.integers(1, 30), steps=st.integers(1, 120), focus=FOCI)
def test_a_long_lived_engine_equals_the_twin_after_any_changes(
    seed: int, hosts: int, steps: int, focus: str
) -> None:
    long_lived_engine_equals_twin(seed, hosts, steps, focus)


@pytest.mark.slow
@examples(6)
@given(seed=SEEDS, hosts=st.integers(100, 400), focus=FOCI)
def test_a_long_lived_engine_on_many_blocks_equals_the_twin(
    seed: int, hosts: int, focus: str
) -> None:
    long_lived_engine_equals_twin(seed, hosts, 150, focus, every=25)


@pytest.mark.slow
def test_one_engine_equals_the_twin_through_thousands_of_applies_and_undos() -> None:
    long_lived_engine_equals_twin(seed=20, hosts=90, steps=3000, every=100)


@examples(40)
@given(seed=SEEDS, hosts=st.integers(1, 40), count=st.integers(1, 30), focus=FOCI)
def test_a_batch_equals_its_requests_one_by_one(
    seed: int, hosts: int, count: int, focus: str
) -> None:
    batch_equals_singles(seed, hosts, count, focus)


@examples(40)
@given(seed=SEEDS, hosts=st.integers(1, 40), count=st.integers(2, 30), focus=FOCI)
def test_a_batch_says_why_as_its_requests_would_one_by_one(
    seed: int, hosts: int, count: int, focus: str
) -> None:
    explained_batch_equals_singles(seed, hosts, count, focus)


@examples(40)
@given(
    seed=SEEDS,
    hosts=st.integers(1, 40),
    count=st.integers(1, 30),
    strategy=st.sampled_from(tuple(CELL_RULES)),
    focus=FOCI,
)
def test_columns_equal_their_requests_one_by_one(
    seed: int, hosts: int, count: int, strategy: str, focus: str
) -> None:
    columns_equal_singles(seed, hosts, count, strategy, focus)


@examples(30)
@given(seed=SEEDS, hosts=st.integers(1, 30), steps=st.integers(1, 40), focus=FOCI)
def test_a_snapshot_and_its_fleet_go_their_own_ways(
    seed: int, hosts: int, steps: int, focus: str
) -> None:
    snapshot_stands_apart(seed, hosts, steps, focus)


@pytest.mark.slow
@examples(2)
@given(seed=SEEDS)
def test_a_search_over_many_runs_of_blocks_finds_the_best_of_all_scores(seed: int) -> None:
    rankings_are_sound(search_equals_scores(seed, hosts=5000, steps=200))


def test_every_strategy_is_compared_with_the_twin() -> None:
    assert set(CELL_RULES) == set(STRATEGIES)
