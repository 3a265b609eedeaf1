"""The random fleets and requests reach everything they are meant to reach."""

from collections import Counter
from dataclasses import replace

from roost.fleet.fleet import Fleet
from roost.model.constraints import LabelOperator
from roost.model.groups import GroupRule
from roost.model.hosts import Scope
from roost.model.reasons import Reason
from roost.model.resources import NumaMode
from tests.naive.engine import ranked
from tests.naive.filters import count_fewest, refusals
from tests.property import generators
from tests.property.laws import grown, requests
from tests.property.pair import STEPS

SEEDS = range(60)


def test_every_reason_is_at_times_the_only_one_that_refuses_a_host() -> None:
    alone: Counter[Reason] = Counter()
    foci = ("any", "rules", "outlook", "network")
    for seed, focus in [(seed, focus) for seed in SEEDS for focus in foci]:
        if set(alone) == set(Reason):
            break
        pair = grown(seed, 12, 20, focus)
        for asked in requests(pair, 12):
            rows, ask = pair.world.rows(), pair.world.ask(asked)
            count_fewest(rows, ask)
            for row in rows:
                refused = refusals(row, ask)
                if len(refused) == 1:
                    alone[refused[0]] += 1
    assert set(alone) == set(Reason), set(Reason) - set(alone)


def test_about_half_of_the_requests_fit() -> None:
    answers: Counter[bool] = Counter()
    for seed in SEEDS:
        pair = grown(seed, 15, 20)
        for asked in requests(pair, 10):
            answers[bool(ranked(pair.world, asked, "first_fit"))] += 1
    assert 0.35 < answers[True] / answers.total() < 0.75


def test_requests_use_every_operator_numa_mode_and_kind_of_group() -> None:
    operators, modes, rules = set(), set(), set()
    for seed in range(150):
        climate = generators.climate(seed, "all")
        for number in range(20):
            asked = generators.request(climate, number)
            operators |= {term.operator for term in asked.constraints.labels}
            modes.add(asked.demand.numa)
        rules |= {(each.rule, each.scope, each.hard, each.max_skew) for each in climate.groups}
    assert operators == set(LabelOperator)
    assert modes == set(NumaMode)
    assert len(rules) == len(GroupRule) * len(Scope) * 2 * 3


def test_every_step_is_taken_and_some_hosts_have_promised_too_much() -> None:
    for name, (weight, _) in STEPS.items():
        assert weight > 0, name
    assert any(grown(seed, 10, 60).world.over_capacity() for seed in range(5))


def test_a_host_is_the_same_in_a_small_and_in_a_large_fleet() -> None:
    small, large = Fleet(), Fleet()
    climate = generators.climate(7)
    for index in range(3):
        small.register(generators.host(climate, index))
    for index in range(30):
        large.register(generators.host(replace(climate), index))
    assert small.to_description().hosts == large.to_description().hosts[:3]
