"""What a policy says as the engine takes it: rules of its VMs alone, weights, bounds."""

import random

import pytest

from roost.base.units import GIB, TIB
from roost.model.flow import PlaceRequest
from roost.model.hosts import Resource
from roost.model.policies import Bundle, PolicyRule, choice_of, rules_of
from roost.model.resources import Demand
from roost.model.rules import RuleSet
from roost.placement.engine import Engine
from roost.placement.kernels import keys
from roost.placement.rules.parts import How, hard_parts
from tests.builders import engine_on, host, put
from tests.naive.numbers import REFERENCE, ratio

pytestmark = pytest.mark.kernel
NAMES = ("cpu", "memory", "disk")


def under(engine: Engine, bundle: Bundle, policy: str = "p") -> None:
    engine.set_rules(RuleSet(rules_of(policy, bundle), 1, {policy: choice_of(bundle)}))


def asked(policy: str = "p", strategy: str | None = None, cpu: int = 1000) -> PlaceRequest:
    return PlaceRequest("vm", Demand(cpu, GIB, GIB), strategy=strategy, policy=policy)


def test_rules_are_for_its_vms_alone() -> None:
    engine = engine_on(host("a"), host("b", labels=(("disk", "ssd"),)))
    under(engine, Bundle("first_fit", rules=(PolicyRule("ssd", 'host.labels["disk"] == "ssd"'),)))
    hosts = [engine.place(asked(policy)).host for policy in ("p", "", "q")]  # type: ignore[union-attr]
    assert hosts == ["b", "a", "a"]
    assert engine.strategy_of(asked()).name == "first_fit"
    assert engine.strategy_of(asked(strategy="best_fit")).name == "best_fit"


def test_overcommitment_is_bounded_by_what_a_host_has() -> None:
    four = Resource(4000, ratio_milli=4000)
    engine = engine_on(host("a", four), host("b", four))
    under(engine, Bundle(overcommit={"cpu": 150}))
    [(_, part)] = hard_parts(engine.terms_of(asked()))
    assert part.how is How.AMOUNTS
    request = asked(cpu=3000)
    for name in ("1", "2", "3", "4"):
        found = engine.find(request)
        if found is not None:
            engine.commit(PlaceRequest(name, request.demand, policy="p"), found)
    assert engine.fleet.hosts.arrays.committed[:2, 0].tolist() == [6000, 6000]
    assert engine.find(asked(policy="", cpu=10_000)) is not None  # the hosts themselves take more
    assert engine.find(asked(cpu=1)) is None


def formula(engine: Engine, strategy: str, weights: tuple[int, ...], row: int) -> int:
    """Return the documented score, in Python's own integers."""
    hosts, total = engine.fleet.hosts.arrays, sum(weights)
    amounts = (1000, GIB, GIB)
    score = 0
    for at, (name, weight) in enumerate(zip(NAMES, weights, strict=True)):
        if strategy == "least_loaded":
            committed, capacity = int(hosts.committed[row, at]), int(hosts.capacity[row, at])
            score += 10 * weight * ratio(committed, capacity) // total
        else:
            free = ratio(int(hosts.headroom[row, at]), REFERENCE[name])
            own = ratio(amounts[at], REFERENCE[name])
            left = 10 * weight * free // total - 10 * weight * own // total
            score += left if strategy == "best_fit" else -left
    return score


def drawn(seed: int) -> Engine:
    chance = random.Random(seed)
    specs = [
        host(f"h{n}", chance.randint(4, 64) * 1000, chance.randint(8, 512) * GIB, 4 * TIB)
        for n in range(60)
    ]
    engine = engine_on(*specs)
    for n in range(200):
        name = f"h{chance.randrange(60)}"
        put(engine.fleet, name, f"t{n}", chance.randint(1, 500), chance.randint(1, 40) * GIB // 32)
    return engine


def agrees(strategy: str) -> None:
    for seed in range(8):
        engine, chance = drawn(seed), random.Random(seed)
        weights = (chance.randint(0, 100), chance.randint(0, 100), chance.randint(1, 100))
        under(engine, Bundle(strategy, dict(zip(NAMES, weights, strict=True))))
        for n in range(30):
            placement = engine.find(asked(), runners_up=2)
            assert placement is not None
            scores = {
                row: formula(engine, strategy, weights, row)
                for row in range(60)
                if engine.fleet.hosts.arrays.headroom[row, 0] >= 1000
                and engine.fleet.hosts.arrays.headroom[row, 1] >= GIB
            }
            best = min(scores, key=lambda row: (scores[row], row))
            assert (placement.host_row, placement.score) == (best, scores[best])
            assert sum(term.value for term in placement.breakdown) == placement.score
            engine.commit(PlaceRequest(f"vm{n}", asked().demand, policy="p"), placement)


@pytest.mark.parametrize("strategy", ["least_loaded", "best_fit", "worst_fit"])
def test_weights_count_as_they_are_documented(strategy: str) -> None:
    agrees(strategy)


def test_weights_that_are_taken_for_others_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(kind: int, cpu: int, memory: int, disk: int) -> int:
        return kind | (memory | cpu << 8 | disk << 16) << keys.KIND_BITS

    monkeypatch.setattr("roost.placement.strategies.weighted_kind", swapped)
    from roost.placement.strategies import weighted_strategy

    weighted_strategy.cache_clear()
    with pytest.raises(AssertionError):
        agrees("least_loaded")
    weighted_strategy.cache_clear()
