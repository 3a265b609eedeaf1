"""Each bad input is a clear message, and nothing has changed."""

import math

import pytest

from roost.base.errors import Conflict, FleetUnavailable, InvalidRequest, InvalidStrategy
from roost.base.units import GIB
from roost.model.constraints import LabelTerm, Preference, label_operator
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Cell, Device, Resource
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.placement.engine import Engine
from tests.builders import engine_on, fleet_of, host, request


@pytest.mark.parametrize(
    ("amounts", "says"),
    [
        ((-1, GIB), "cpu -1 is negative"),
        ((0, GIB), "needs cpu and memory"),
        ((1000, 0), "needs cpu and memory"),
        ((math.nan, GIB), "not a whole number"),
        ((1.5, GIB), "not a whole number"),
        ((True, GIB), "not a whole number"),
        ((1000, 2**48 + 1), "more than 2\\^48"),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused(amounts, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Demand(*amounts)


@pytest.mark.parametrize("ask", [(0,), (1, 0), (1, 1001), (1, 1000, (), -1)])
def test_a_device_demand_that_makes_no_sense_is_refused(ask) -> None:
    with pytest.raises(InvalidRequest):
        DeviceDemand(*ask)


def test_an_unknown_label_operator_lists_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="known operators: in, not-in, exists, absent, gt, lt"):
        label_operator("like")


@pytest.mark.parametrize(
    ("operator", "values"), [("exists", ("x",)), ("in", ()), ("gt", ("high",)), ("lt", ("1", "2"))]
)
def test_a_label_term_with_the_wrong_values_is_refused(operator: str, values) -> None:
    with pytest.raises(InvalidRequest, match=f"label operator '{operator}'"):
        LabelTerm("key", label_operator(operator), values)


@pytest.mark.parametrize("weight", [0, 101])
def test_weights_are_within_one_and_a_hundred(weight: int) -> None:
    with pytest.raises(InvalidRequest):
        Preference(LabelTerm("ssd", label_operator("exists")), weight)
    with pytest.raises(InvalidRequest):
        GroupSpec("g", GroupRule.SPREAD, weight=weight)


@pytest.mark.parametrize(
    "resource",
    [
        {"total": -1},
        {"total": 2**48 + 1},
        {"total": 1, "ratio_milli": 0},
        {"total": 2**48, "ratio_milli": 2000},
    ],
)
def test_an_inventory_that_makes_no_sense_is_refused(resource) -> None:
    with pytest.raises(InvalidRequest):
        Resource(**resource)


def test_a_host_name_can_be_registered_once() -> None:
    fleet = fleet_of(host("a"))
    before = fleet.to_description()
    with pytest.raises(Conflict, match="host 'a' is already registered"):
        fleet.register(host("a", 1000))
    assert fleet.to_description() == before


def test_more_device_models_than_a_word_has_bits_are_refused() -> None:
    fleet = fleet_of(*(host(f"h{n}", devices=(Device(f"M{n}"),)) for n in range(62)))
    before = fleet.to_description()
    with pytest.raises(InvalidRequest, match="M62 are too many"):
        fleet.register(host("one-more", devices=(Device("M62"),)))
    assert fleet.to_description() == before


def test_more_devices_or_cells_than_a_word_has_bits_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 62"):
        host(devices=(Device("A100"),) * 63)
    with pytest.raises(InvalidRequest, match="at most 62"):
        host(cells=(Cell(1, 1),) * 63)


def test_a_hold_keeps_amounts_only() -> None:
    fleet = fleet_of(host("a", devices=(Device("A100"),)))
    with pytest.raises(InvalidRequest, match="not devices or NUMA cells"):
        fleet.hold("h", "a", Demand(1, 1, devices=DeviceDemand(1)))
    with pytest.raises(InvalidRequest, match="not devices or NUMA cells"):
        fleet.hold("h", "a", Demand(1, 1, numa=NumaMode.ONE_CELL))


def test_an_unknown_strategy_lists_the_valid_ones() -> None:
    with pytest.raises(InvalidStrategy, match="unknown strategy 'tightest'; valid strategies are"):
        engine_on(host()).place(request(strategy="tightest"))


def test_an_engine_without_a_fleet_is_unavailable() -> None:
    with pytest.raises(FleetUnavailable) as caught:
        Engine(None)
    assert caught.value.code == "agent_service_unavailable"


def test_a_batch_with_a_name_twice_changes_nothing() -> None:
    engine = engine_on(host())
    with pytest.raises(Conflict, match="in the batch twice"):
        engine.place_batch([request("x"), request("x")])
    assert engine.fleet.vms.alive == 0


def test_a_group_with_another_rule_is_a_conflict() -> None:
    engine = engine_on(host())
    engine.place_batch([request("x", groups=(GroupSpec("g", GroupRule.SPREAD),))])
    with pytest.raises(Conflict, match="group 'g'"):
        engine.place(request("y", groups=(GroupSpec("g", GroupRule.AFFINITY),)))


@pytest.mark.parametrize("strategy", ["least_loaded", "best_fit", "worst_fit", "dot_product"])
def test_the_largest_amounts_do_not_overflow(strategy: str) -> None:
    most = 2**48
    engine = engine_on(
        host("a", most, most, most), host("b", most, most, most - 1), strategy=strategy
    )
    placement = engine.place(request("vm", most // 2, most // 2, most // 2))
    assert placement.host in ("a", "b")
    assert abs(placement.score) < 2**62
