"""Each strategy on fleets small enough to check by hand."""

from collections import Counter

import pytest

from roost.base.errors import InvalidStrategy
from roost.base.units import GIB, TIB
from roost.model.constraints import LabelOperator, LabelTerm, Preference
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Cell, Device, Scope, Taint, TaintEffect
from roost.model.resources import DeviceDemand, NumaMode
from roost.placement.engine import Engine
from roost.placement.mix import Mix, TypicalRequest
from roost.placement.strategies import DEFAULT_STRATEGY, SCORE_ONE, STRATEGIES, strategy_named
from tests.builders import engine_on, fleet_of, host, put, request

SSD = LabelTerm("ssd", LabelOperator.EXISTS)


def chosen(engine: Engine, strategy: str, **asked: object) -> str:
    found = engine.find(request(strategy=strategy, **asked))
    assert found is not None
    return found.host


def test_the_default_is_least_loaded() -> None:
    assert DEFAULT_STRATEGY == "least_loaded"
    assert Engine(fleet_of()).default_strategy == "least_loaded"


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(InvalidStrategy) as caught:
        strategy_named("tightest")
    assert caught.value.code == "invalid_strategy"
    assert caught.value.details["valid"] == list(STRATEGIES)


def test_least_loaded_weighs_cpu_and_memory_twice_as_much_as_disk() -> None:
    engine = engine_on(host("cpu", 10_000), host("disk", disk_bytes=TIB), strategy="least_loaded")
    put(engine.fleet, "cpu", "a", cpu_milli=1000, memory_bytes=1)
    put(engine.fleet, "disk", "b", cpu_milli=1, memory_bytes=1, disk_bytes=TIB // 10)
    assert chosen(engine, "least_loaded") == "disk"


def test_least_loaded_is_exactly_the_committed_share_before_the_placement() -> None:
    engine = engine_on(host("a", 16_000, 32 * GIB, 500 * GIB))
    put(engine.fleet, "a", cpu_milli=12_000, memory_bytes=24 * GIB, disk_bytes=100 * GIB)
    found = engine.find(request(strategy="least_loaded"))
    assert found is not None
    assert found.score == (4 * 3 * 2**28 + 4 * 3 * 2**28 + 2 * (2**30 // 5))


def test_zero_capacity_counts_as_no_load() -> None:
    engine = engine_on(host("no-disk", disk_bytes=0), host("b"))
    put(engine.fleet, "b", cpu_milli=100)
    assert chosen(engine, "least_loaded") == "no-disk"


def test_best_fit_takes_the_fullest_and_smallest_sufficient_host() -> None:
    engine = engine_on(host("large", 64_000), host("small", 8000), host("full", 8000))
    put(engine.fleet, "full", cpu_milli=6000)
    assert chosen(engine, "best_fit") == "full"
    assert chosen(engine, "best_fit", cpu_milli=4000) == "small"


def test_best_fit_leaves_the_fewest_devices_over() -> None:
    gpus = tuple(Device("A100") for _ in range(8))
    engine = engine_on(host("large", 16_000, devices=gpus), host("small", 16_000, devices=gpus[:2]))
    put(engine.fleet, "large", cpu_milli=8000)  # of cpu less is left there
    one = DeviceDemand(1, 1000)
    assert chosen(engine, "best_fit", devices=one) == "small"
    assert chosen(engine, "dot_product", devices=one) == "large"
    assert chosen(engine, "best_fit", devices=DeviceDemand(3, 1000)) == "large"


def test_best_fit_puts_a_plain_vm_where_devices_are_in_use() -> None:
    gpus = tuple(Device("A100") for _ in range(4))
    engine = engine_on(host("idle", devices=gpus), host("in-use", devices=gpus))
    taken = request("taken", devices=DeviceDemand(4, 1000), pinned=("in-use",))
    engine.commit(taken, engine.find(taken))
    put(engine.fleet, "idle", cpu_milli=1000, memory_bytes=GIB)  # as much of all else is left
    assert chosen(engine, "best_fit") == "in-use"
    engine.fleet.register(host("plain"))
    assert chosen(engine, "best_fit") == "plain"


def test_worst_fit_takes_the_host_with_most_left() -> None:
    assert chosen(engine_on(host("a", 8000), host("b", 64_000)), "worst_fit") == "b"


def test_an_exact_fit_fits() -> None:
    engine = engine_on(host("a", 1000, GIB, GIB))
    for strategy in STRATEGIES:
        assert chosen(engine, strategy, cpu_milli=1000, memory_bytes=GIB, disk_bytes=GIB) == "a"


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"random"}))
def test_ties_go_to_the_lower_number(strategy: str) -> None:
    assert chosen(engine_on(host("b"), host("a")), strategy) == "b"


def test_round_robin_goes_on_after_the_cursor_and_round() -> None:
    engine = engine_on(*(host(name) for name in "abc"), strategy="round_robin")
    placed = [engine.find(request(), cursor=cursor) for cursor in (-1, 0, 1, 2)]
    assert [found.host for found in placed] == ["a", "b", "c", "a"]
    assert [found.cursor for found in placed] == [0, 1, 2, 0]


def test_round_robin_moves_its_cursor_when_a_placement_is_committed() -> None:
    engine = engine_on(*(host(name) for name in "abc"), strategy="round_robin")
    answers = engine.place_batch([request(f"vm{n}") for n in range(4)])
    assert [answer.host for answer in answers] == ["a", "b", "c", "a"]


def test_random_is_uniform_and_repeats_with_its_seed() -> None:
    engine = engine_on(*(host(f"h{n}") for n in range(5)), strategy="random")
    drawn = Counter(engine.find(request(seed=seed)).host for seed in range(2000))
    assert len(drawn) == 5
    assert all(320 <= count <= 480 for count in drawn.values())
    assert engine.find(request(seed=7)) == engine.find(request(seed=7))


def test_random_finds_the_only_host_that_fits() -> None:
    engine = engine_on(*(host(f"h{n}", 500) for n in range(300)), host("big"), strategy="random")
    assert {engine.find(request(seed=seed)).host for seed in range(20)} == {"big"}


def test_fewest_vms_counts_vms_and_not_amounts() -> None:
    engine = engine_on(host("many"), host("few"))
    put(engine.fleet, "many", "a", cpu_milli=1)
    put(engine.fleet, "many", "b", cpu_milli=1)
    put(engine.fleet, "few", "c", cpu_milli=15_000)
    assert chosen(engine, "fewest_vms") == "few"


def test_balance_fit_evens_out_numa_cells() -> None:
    cells = (Cell(8000, 32 * GIB), Cell(8000, 32 * GIB))
    engine = engine_on(host("even", cells=cells), host("uneven", cells=cells))
    tilt = request("tilt", 4000, GIB, numa=NumaMode.ONE_CELL, pinned=("uneven",))
    engine.commit(tilt, engine.find(tilt))
    found = engine.find(request(strategy="balance_fit", numa=NumaMode.ONE_CELL))
    assert (found.host, found.cells) == ("uneven", (1,))
    assert chosen(engine, "balance_fit", numa=NumaMode.SPLIT) == "even"


def test_balance_fit_takes_the_first_of_equally_uneven_hosts() -> None:
    # 1 - 2/3 and 1/3 - 0 are the same; of the shares as they are rounded the first is more.
    cells = (Cell(3000, 32 * GIB), Cell(3000, 32 * GIB))
    engine = engine_on(host("first", 6000, cells=cells), host("second", 6000, cells=cells))
    fleet = engine.fleet
    for name, cell, cpu_milli in (("first", 0, 2000), ("first", 1, 3000), ("second", 1, 1000)):
        demand = fleet.vector(request(cpu_milli=cpu_milli, memory_bytes=GIB).demand)
        fleet.apply(f"{name}{cell}", fleet.row(name), demand, cells=1 << cell)
    one_cell = {"cpu_milli": 500, "numa": NumaMode.ONE_CELL}
    assert chosen(engine, "balance_fit", **one_cell) == "first"


def test_dot_product_matches_directions() -> None:
    engine = engine_on(host("cpu-rich", 64_000, 64 * GIB), host("memory-rich", 16_000, 256 * GIB))
    assert chosen(engine, "dot_product", cpu_milli=8000, memory_bytes=GIB) == "cpu-rich"
    assert chosen(engine, "dot_product", cpu_milli=500, memory_bytes=32 * GIB) == "memory-rich"


def test_fragmentation_keeps_whole_devices_whole() -> None:
    devices = (Device("A100"), Device("A100"))
    mix = Mix(
        (
            TypicalRequest(1000, GIB, DeviceDemand(1, 1000)),
            TypicalRequest(1000, GIB, DeviceDemand(1, 500)),
        )
    )
    engine = Engine(fleet_of(host("a", devices=devices)), "fragmentation", mix)
    first = request("first", devices=DeviceDemand(1, 500))
    engine.commit(first, engine.find(first))
    assert engine.find(request(devices=DeviceDemand(1, 500))).devices == (0,)


def test_an_unmet_preference_costs_its_weight_in_hundredths_of_a_score() -> None:
    engine = engine_on(host("plain"), host("ssd", labels=(("ssd", "1"),)), strategy="first_fit")
    liked = request(preferences=(Preference(SSD, 30),))
    found = engine.find(liked, runners_up=1)
    assert (found.host, found.score) == ("ssd", 0)
    assert found.runners_up[0].score == 30 * (SCORE_ONE // 100)


def test_a_preference_gives_way_to_a_larger_difference_of_load() -> None:
    engine = engine_on(host("idle"), host("ssd", labels=(("ssd", "1"),)))
    put(engine.fleet, "ssd", cpu_milli=12_000, memory_bytes=48 * GIB)
    light = request(preferences=(Preference(SSD, 10),), strategy="least_loaded")
    heavy = request(preferences=(Preference(SSD, 90),), strategy="least_loaded")
    assert engine.find(light).host == "idle"
    assert engine.find(heavy).host == "ssd"


def test_a_prefer_not_taint_is_avoided_but_not_forbidden() -> None:
    shunned = host("shunned", taints=(Taint("old", "", TaintEffect.PREFER_NOT),))
    assert chosen(engine_on(shunned, host("other")), "first_fit") == "other"
    assert chosen(engine_on(shunned), "first_fit") == "shunned"


def test_a_soft_group_spreads_as_long_as_it_can() -> None:
    apart = GroupSpec("apart", GroupRule.ANTI_AFFINITY, Scope.HOST, hard=False)
    engine = engine_on(host("a"), host("b"))
    answers = engine.place_batch([request(f"vm{n}", groups=(apart,)) for n in range(3)])
    assert [answer.host for answer in answers] == ["a", "b", "a"]


def test_confidence_is_the_lead_over_the_runner_up() -> None:
    engine = engine_on(host("a"), host("b"), strategy="least_loaded")
    assert engine.find(request(), runners_up=1).confidence == 0.0
    put(engine.fleet, "b", cpu_milli=16_000, memory_bytes=64 * GIB)
    assert engine.find(request(), runners_up=1).confidence == 1.0


def test_the_breakdown_adds_up_to_the_score() -> None:
    gpus = tuple(Device("A100") for _ in range(3))
    engine = engine_on(host("a", labels=(("x", "1"),), devices=gpus))
    put(engine.fleet, "a", cpu_milli=3000, memory_bytes=5 * GIB, disk_bytes=GIB)
    asked = {"preferences": (Preference(SSD, 20),)}
    for strategy in STRATEGIES:
        found = engine.find(request(strategy=strategy, **asked), runners_up=1)
        assert sum(term.value for term in found.breakdown) == found.score
