"""Strategies that go by what is foreseen, on fleets small enough to check by hand."""

from dataclasses import replace

import pytest

from roost.base.errors import Conflict
from roost.base.units import GIB
from roost.model.flow import PlaceRequest, Rejection, RejectionCode, ScoreTerm
from roost.model.hosts import Resource
from roost.model.outlook import Expected, Predicted, PredictionBasis
from roost.model.reasons import Reason
from roost.placement.capacity import capacity
from roost.placement.engine import Engine
from roost.placement.explain import explain
from roost.placement.replay import record, replay
from roost.placement.strategies import SCORE_ONE
from roost.placement.whatif import WhatIf
from tests.builders import engine_on, host, put, request

HOUR = 3600
BASIS = PredictionBasis("sha256:1", 900)


def asked(name: str = "vm", expected: Expected | None = None, **what: object) -> PlaceRequest:
    """Return a request of which something is expected."""
    return replace(request(name, **what), expected=expected or Expected())


def place(engine: Engine, wanted: PlaceRequest) -> str:
    """Place and commit one request and return the host's name."""
    found = engine.find(wanted)
    assert found is not None
    engine.commit(wanted, found)
    return found.host


# metrics_based


def test_metrics_based_takes_the_least_predicted_load_not_the_least_promised() -> None:
    engine = engine_on(host("full"), host("busy"), strategy="metrics_based")
    put(engine.fleet, "full", cpu_milli=12_000, memory_bytes=32 * GIB)
    engine.fleet.set_predicted(
        {"full": Predicted(1600, 4 * GIB), "busy": Predicted(8000, 4 * GIB)}, BASIS
    )
    assert place(engine, asked()) == "full"


def test_the_share_is_of_the_machine_and_not_of_what_overcommit_makes_of_it() -> None:
    twice = Resource(16_000, ratio_milli=4000)
    engine = engine_on(host("over", twice), host("plain"), strategy="metrics_based")
    told = {"over": Predicted(4000, GIB), "plain": Predicted(3000, GIB)}
    engine.fleet.set_predicted(told, BASIS)
    found = engine.find(asked())
    assert found is not None
    assert found.host == "plain"
    assert found.score == 5 * (3000 * 2**30 // 16_000) + 5 * (2**30 // 64)


def test_a_host_of_which_nothing_is_predicted_comes_after_the_busiest() -> None:
    engine = engine_on(host("unknown"), host("busy"), strategy="metrics_based")
    engine.fleet.set_predicted({"busy": Predicted(10**9, 2**47)}, BASIS)
    assert place(engine, asked()) == "busy"


def test_without_any_prediction_it_goes_by_what_is_promised_and_says_so() -> None:
    engine = engine_on(host("a"), host("b"), strategy="metrics_based")
    put(engine.fleet, "a", cpu_milli=4000)
    put(engine.fleet, "b", "other", cpu_milli=1000)
    found = engine.find(asked(), runners_up=1)
    assert found is not None
    assert found.host == "b"
    assert ScoreTerm("not predicted", 10 * SCORE_ONE) in found.breakdown
    assert sum(term.value for term in found.breakdown) == found.score


def test_placements_between_two_samples_do_not_all_choose_the_same_cool_host() -> None:
    engine = engine_on(host("a"), host("b"), host("c"), strategy="metrics_based")
    told = {name: Predicted(cpu, GIB) for name, cpu in (("a", 0), ("b", 500), ("c", 900))}
    engine.fleet.set_predicted(told, BASIS)
    use = Expected(cpu_milli=600, memory_bytes=0)
    chosen = [place(engine, asked(f"vm-{number}", use)) for number in range(4)]
    assert chosen == ["a", "b", "a", "c"]
    batch = engine_on(host("a"), host("b"), host("c"), strategy="metrics_based")
    batch.fleet.set_predicted(told, BASIS)
    many = batch.place_batch([asked(f"vm-{number}", use) for number in range(4)])
    assert [each.host for each in many] == chosen


def test_explain_shows_the_predicted_load_its_range_and_its_age() -> None:
    engine = engine_on(host("a"), host("b"), strategy="metrics_based")
    told = Predicted(2000, GIB, cpu_range=(900, 2400), memory_range=(1, 2), as_of_s=77)
    engine.fleet.set_predicted({"a": told}, BASIS)
    put(engine.fleet, "a", cpu_milli=1000, memory_bytes=1)
    explanation = explain(engine, asked())
    assert explanation.verdict("a").predicted == replace(told, cpu_milli=3000, memory_bytes=GIB + 1)
    assert explanation.verdict("b").predicted is None
    assert engine.find(asked(), runners_up=1).breakdown[:2] == (
        ScoreTerm("cpu", 5 * (3000 * 2**30 // 16_000)),
        ScoreTerm("memory", 5 * (2**30 // 64)),
    )


def test_the_amounts_in_a_score_are_the_kernels_own() -> None:
    engine = engine_on(host("a"), host("b"), strategy="metrics_based")
    put(engine.fleet, "b", cpu_milli=3000)
    engine.fleet.set_predicted({"a": Predicted(2000, GIB)}, BASIS)
    world = WhatIf.like(engine)
    for name in ("a", "b"):
        wanted = asked(pinned=(name,))
        found = engine.find(wanted, runners_up=1)
        assert found is not None
        amounts = world.amounts_in_score(wanted, found.host_row)
        assert amounts == tuple(t for t in found.breakdown if t.name in ("cpu", "memory", "disk"))


# lifetime_aware


def test_a_vm_joins_hosts_that_stay_at_least_as_long_and_among_them_the_fullest() -> None:
    engine = engine_on(*(host(name) for name in "abcd"), strategy="lifetime_aware")
    for name, ends_h, cpu in (("a", 2, 9000), ("b", 30, 1000), ("c", 40, 5000)):
        wanted = asked(name, Expected(ends_s=ends_h * HOUR), cpu_milli=cpu, pinned=(name,))
        place(engine, wanted)
    assert place(engine, asked("like-b", Expected(ends_s=30 * HOUR))) == "c"
    assert place(engine, asked("like-a", Expected(ends_s=2 * HOUR))) == "a"
    assert place(engine, asked("a-bit-longer", Expected(ends_s=3 * HOUR))) == "c"


@pytest.mark.parametrize(
    ("longer_s", "tier"),
    [
        (-5, 0),
        (0, 0),
        (1, 1),
        (HOUR, 1),
        (HOUR + 1, 2),
        (4 * HOUR, 2),
        (16 * HOUR, 3),
        (64 * HOUR, 4),
        (256 * HOUR, 5),
        (256 * HOUR + 1, 6),
    ],
)
def test_each_tier_of_outlasting_costs_four_scores(longer_s: int, tier: int) -> None:
    engine = engine_on(host("a"), strategy="lifetime_aware")
    place(engine, asked("first", Expected(ends_s=5000)))
    found = engine.find(asked("next", Expected(ends_s=5000 + longer_s)))
    plain = engine.find(asked("next", strategy="best_fit"))
    assert found is not None
    assert plain is not None
    assert found.score - plain.score == 4 * tier * SCORE_ONE
    assert found.score == engine.scores(asked("next", Expected(ends_s=5000 + longer_s)))[0]


def test_an_empty_host_comes_last_and_an_unknown_end_is_for_ever() -> None:
    engine = engine_on(host("empty"), host("short"), host("ever"), strategy="lifetime_aware")
    place(engine, asked("s", Expected(ends_s=HOUR), cpu_milli=5000, pinned=("short",)))
    place(engine, asked("e", pinned=("ever",)))
    assert place(engine, asked("unknown")) == "ever"
    assert place(engine, asked("long", Expected(ends_s=9999 * HOUR))) == "ever"
    big = asked("big", Expected(ends_s=9999 * HOUR), cpu_milli=15_000)
    assert place(engine, big) == "empty"


def test_the_host_follows_when_its_last_vm_leaves() -> None:
    engine = engine_on(host("a"), host("b"), strategy="lifetime_aware")
    place(engine, asked("long", Expected(ends_s=90 * HOUR), pinned=("a",)))
    place(engine, asked("short", Expected(ends_s=HOUR), cpu_milli=4000, pinned=("a",)))
    place(engine, asked("other", Expected(ends_s=50 * HOUR), pinned=("b",)))
    wanted = asked("next", Expected(ends_s=50 * HOUR))
    assert engine.find(wanted).host == "a"
    engine.fleet.remove(engine.fleet.vm_number("long"))
    assert engine.find(wanted).host == "b"
    assert explain(engine, wanted).verdict("a").ends_s == HOUR


def test_without_expectations_it_places_as_best_fit_does() -> None:
    hosts = [host(f"h{number}", 8000 + 1000 * number) for number in range(6)]
    lifetime, best = (engine_on(*hosts, strategy=s) for s in ("lifetime_aware", "best_fit"))
    for number in range(30):
        wanted = asked(f"vm-{number}", cpu_milli=500 + 300 * (number % 4))
        assert place(lifetime, wanted) == place(best, wanted)


def test_capacity_counts_the_same_under_both_strategies() -> None:
    for strategy in ("metrics_based", "lifetime_aware", "least_loaded"):
        engine = engine_on(host("a"), host("b"), strategy=strategy)
        engine.fleet.set_predicted({"a": Predicted(2000, GIB)}, BASIS)
        assert capacity(engine, asked(expected=Expected(100, 100, HOUR))).count == 32


# Decisions replay


@pytest.mark.parametrize("strategy", ["metrics_based", "lifetime_aware", "least_loaded"])
def test_a_record_names_the_digest_of_the_predictions_and_replays(strategy: str) -> None:
    engine = engine_on(*(host(f"h{n}") for n in range(9)), strategy=strategy)
    put(engine.fleet, "h3")
    engine.fleet.set_predicted({f"h{n}": Predicted(900 * n, GIB) for n in range(2, 9)}, BASIS)
    decision = record(engine, asked(expected=Expected(200, ends_s=HOUR)))
    assert decision.predicted == "sha256:1"
    again = replay(decision, engine.fleet.snapshot())
    assert repr(again).encode() == decision.answer_bytes()


def test_a_record_does_not_replay_on_other_predictions() -> None:
    engine = engine_on(host("a"))
    engine.fleet.set_predicted({"a": Predicted(1, 1)}, BASIS)
    decision = record(engine, asked())
    other = engine.fleet.snapshot()
    other.basis = PredictionBasis("sha256:2")
    with pytest.raises(Conflict, match="decided by predictions 'sha256:1'"):
        replay(decision, other)


# Pressure


def test_a_host_above_the_bound_or_without_a_reading_takes_no_vm_while_there_is_one() -> None:
    engine = engine_on(host("calm"), host("pressed"), host("silent"))
    fleet = engine.fleet
    fleet.set_measured("calm", {}, {"cpu": 20.0, "io": 90.0})
    fleet.set_measured("pressed", {}, {"cpu": 20.1})
    assert fleet.hosts.arrays.takes[:3].all()
    fleet.set_pressure_bounds({"cpu": 20.0})
    assert fleet.hosts.arrays.takes[:3].tolist() == [True, False, False]
    verdicts = {each.host: each.reasons for each in explain(engine, asked()).verdicts()}
    assert verdicts == {"calm": (), "pressed": (Reason.PRESSURE,), "silent": (Reason.PRESSURE,)}
    fleet.set_measured("pressed", {}, {"cpu": 3.0})
    assert fleet.hosts.arrays.takes[:3].tolist() == [True, True, False]
    fleet.set_pressure_bounds({})
    assert fleet.hosts.arrays.takes[:3].all()


def test_a_fleet_under_pressure_refuses_for_that_reason_as_for_missing_room() -> None:
    engine = engine_on(host("a"), host("b"))
    engine.fleet.set_pressure_bounds({"memory": 10})
    answer = engine.place(asked())
    assert isinstance(answer, Rejection)
    assert answer.code is RejectionCode.INSUFFICIENT_RESOURCES
    assert [(c.reason, c.first) for c in answer.reasons] == [(Reason.PRESSURE, 2)]
    assert "2 hosts refused (2 pressure)" in answer.message


def test_vms_stay_on_a_host_that_comes_under_pressure() -> None:
    engine = engine_on(host("a"), host("b"))
    place(engine, asked("there", pinned=("a",)))
    engine.fleet.set_measured("b", {}, {"cpu": 1.0})
    engine.fleet.set_pressure_bounds({"cpu": 50})
    assert engine.fleet.hosts.arrays.vm_count.tolist()[:2] == [1, 0]
    assert place(engine, asked("next")) == "b"
