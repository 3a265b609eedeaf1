"""A recommendation is what a create would do: the same first host, the same scores and addends.

For a VM that is placed: where a move would take it, judged as if it were nowhere.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.model.flow import Placement, PlaceRequest
from roost.placement import recommending
from roost.placement.engine import NO_FIT, Engine
from roost.placement.recommending import MOST_RANKED, Ranking, recommend
from roost.placement.whatif import WhatIf
from tests.naive.engine import CELL_RULES
from tests.property import generators
from tests.property.laws import FOCI, SEEDS, examples, grown


def recommends_what_a_create_does(seed: int, hosts: int, focus: str = "any") -> None:
    """The first host is the engine's, and so are the others, their scores and addends."""
    pair = grown(seed, hosts, hosts, focus)
    for number, strategy in enumerate(CELL_RULES):
        asked = replace(generators.request(pair.climate, number), strategy=strategy)
        most = 1 + (seed + number) % MOST_RANKED
        found = pair.engine.find(asked, runners_up=most)
        ranking = recommend(WhatIf.like(pair.engine), asked, most)
        _is_the_engines(pair.engine, asked, ranking, found)


def recommends_what_a_move_does(seed: int, hosts: int, focus: str = "any") -> None:
    """A VM that has a host: the best other one is where a move goes, and its own has its rank."""
    pair = grown(seed, hosts, hosts, focus)
    for number, strategy in enumerate(CELL_RULES):
        asked = replace(generators.request(pair.climate, number), strategy=strategy)
        there = pair.engine.find(asked, cursor=-1)
        if there is None:
            continue
        rest = (*asked.constraints.excluded, there.host)
        away = replace(asked, constraints=replace(asked.constraints, excluded=rest))
        found = pair.engine.find(away, runners_up=4)
        ranking = recommend(WhatIf.like(pair.engine), asked, 4, there.host)
        _is_the_engines(pair.engine, away, ranking, found)
        own = ranking.here
        assert own is not None
        assert own.score == pair.engine.scores(asked)[there.host_row] != NO_FIT
        assert own.rank is not None
        ranks = [each.rank for each in ranking.ranked]
        assert own.rank not in ranks
        assert sorted(ranks) == ranks


def _is_the_engines(
    engine: Engine, asked: PlaceRequest, ranking: Ranking, found: Placement | None
) -> None:
    if found is None:
        assert not ranking.ranked
        assert ranking.rejection is not None
        return
    expected = [found.host, *(each.host for each in found.runners_up)]
    assert [each.host for each in ranking.ranked] == expected[: len(ranking.ranked)]
    assert ranking.ranked[0].score == found.score
    assert ranking.ranked[0].breakdown == found.breakdown
    bound = engine.terms_of(asked).rules
    for each in ranking.ranked:
        assert sum(term.value for term in each.breakdown) == each.score
        assert [says.rule for says in each.rules] == [rule.name for rule in bound]
        assert all(says.holds for says in each.rules if says.hard)


@given(SEEDS, st.integers(1, 40), FOCI)
@examples(40)
def test_the_first_recommendation_is_where_a_create_goes(seed: int, hosts: int, focus: str) -> None:
    recommends_what_a_create_does(seed, hosts, focus)


@given(SEEDS, st.integers(2, 30), FOCI)
@examples(40)
def test_the_first_other_host_is_where_a_move_goes(seed: int, hosts: int, focus: str) -> None:
    recommends_what_a_move_does(seed, hosts, focus)


def some_seeds(law: Callable[[int, int], None]) -> None:
    for seed in range(20):
        law(seed, 12)


@pytest.mark.parametrize("law", [recommends_what_a_create_does, recommends_what_a_move_does])
def test_the_laws_notice_a_ranking_by_score_alone(
    law: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns, draws and ties are the engine's business: who sorts scores gets them wrong."""

    class Sorting(WhatIf):
        def find(self, request: PlaceRequest, **how: object) -> Placement | None:
            found = super().find(request, **how)  # type: ignore[arg-type]
            if found is None:
                return None
            row = int(self.scores(request).argmax() if request.strategy == "random" else 0)
            return found._replace(host_row=row, host=self.fleet.hosts.names[row])

    honest = recommending.recommend

    def broken(world: WhatIf, *asked: object) -> Ranking:
        return honest(Sorting.like(world), *asked)  # type: ignore[arg-type]

    monkeypatch.setitem(globals(), "recommend", broken)
    with pytest.raises(AssertionError):
        some_seeds(law)


def test_the_law_notices_addends_that_leave_a_rule_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WhatIf, "charges", lambda *_: ({}, 0))
    with pytest.raises(AssertionError):
        some_seeds(partial(recommends_what_a_create_does, focus="soft rules"))
