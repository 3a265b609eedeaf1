"""The engine stays exact when its tables overflow, its log is too short and its blocks run out.

On a fleet of ordinary size none of this ever happens, so the limits are lowered here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.fleet.changes import ChangeLog
from roost.placement import engine, rankings, selectors, tables
from roost.placement.kernels.ranking import M_FREE_BLOCKS, M_REBUILDS, Ranking, rebuild
from tests.property.laws import SEEDS, examples, long_lived_engine_equals_twin, search_equals_scores

HOSTS = st.integers(20, 120)
FEW_RULES = ((selectors, "_MOST_WORDS", 1), (tables, "_MOST_LISTED", 800))
SHORT_LOG = ((ChangeLog.__init__, "__defaults__", (3,)),)


@contextmanager
def changed(*changes: tuple[object, str, object]) -> Iterator[None]:
    """Change some module's names for a while; a fixture would last over many examples."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in changes:
            patch.setattr(owner, name, value)
        yield


@examples(10)
@given(seed=SEEDS, hosts=HOSTS)
def test_selectors_that_do_not_fit_any_more_start_again(seed: int, hosts: int) -> None:
    with changed(*FEW_RULES):
        long_lived_engine_equals_twin(seed, hosts, steps=60, every=20)


def test_selectors_do_start_again_under_that_limit() -> None:
    with changed(*FEW_RULES):
        engine = long_lived_engine_equals_twin(1, 60, 120, "attributes", every=60)
    assert engine._selectors.generation > 0


@examples(10)
@given(seed=SEEDS, hosts=HOSTS)
def test_a_log_that_does_not_reach_back_makes_readers_rebuild(seed: int, hosts: int) -> None:
    with changed(*SHORT_LOG):
        long_lived_engine_equals_twin(seed, hosts, steps=60, every=20)


def test_a_short_log_says_that_it_does_not_reach_back() -> None:
    with changed(*SHORT_LOG):
        log = ChangeLog()
    for row in range(4):
        log.add(row)
    assert log.since(0) is None
    assert log.since(1).tolist() == [1, 2, 3]


def nearly_full(ranking: Ranking, *rest: object) -> None:
    """Rebuild a ranking and leave it two unused blocks."""
    rebuild(ranking, *rest)
    ranking.meta[M_FREE_BLOCKS] = 2


@examples(4)
@given(seed=SEEDS)
def test_a_ranking_that_runs_out_of_blocks_is_rebuilt_and_the_batch_goes_on(seed: int) -> None:
    with changed((rankings, "rebuild", nearly_full), (engine, "rebuild", nearly_full)):
        made = search_equals_scores(seed, hosts=600, steps=100)
    rebuilds = [ranking.meta[M_REBUILDS] for ranking in made._rankings._kept.values()]
    assert max(rebuilds) > 2
