"""What is foreseen counts at once, leaves with the VM, and comes back by undo."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest, NotFound
from roost.base.units import GIB
from roost.fleet.check import check
from roost.fleet.fleet import Fleet
from roost.fleet.outlook import expected_vector, last_end, prediction
from roost.model.outlook import LATEST_S, Expected, Predicted, PredictionBasis
from roost.model.resources import Demand
from tests.builders import fleet_of, host, put

BASIS = PredictionBasis("sha256:1", 900)


def put_expected(fleet: Fleet, where: str, name: str, expected: Expected) -> int:
    """Put a VM of one core and 1 GiB of which something is expected."""
    demand = fleet.vector(Demand(1000, GIB))
    return fleet.apply(name, fleet.row(where), demand, expected=expected_vector(expected))


def predicted_cpu(fleet: Fleet, name: str) -> int | None:
    """Return the cpu that is predicted of a host now."""
    found = prediction(fleet, fleet.row(name))
    return found and found.cpu_milli


def test_nothing_is_predicted_of_a_new_host_nor_of_one_left_out() -> None:
    fleet = fleet_of(host("a"), host("b"))
    assert predicted_cpu(fleet, "a") is None
    fleet.set_predicted({"a": Predicted(500, GIB)}, BASIS)
    assert (predicted_cpu(fleet, "a"), predicted_cpu(fleet, "b")) == (500, None)
    fleet.set_predicted({"b": Predicted(700, GIB)})
    assert (predicted_cpu(fleet, "a"), predicted_cpu(fleet, "b")) == (None, 700)


def test_a_vm_counts_with_its_expected_use_from_placement_until_it_leaves() -> None:
    fleet = fleet_of(host("a"))
    fleet.set_predicted({"a": Predicted(500, GIB)}, BASIS)
    number = put_expected(fleet, "a", "vm", Expected(cpu_milli=300))
    assert predicted_cpu(fleet, "a") == 800
    fleet.remove(number)
    assert predicted_cpu(fleet, "a") == 500


def test_a_vm_of_unknown_use_counts_as_all_that_it_asked_for() -> None:
    fleet = fleet_of(host("a"))
    fleet.set_predicted({"a": Predicted(500, GIB)}, BASIS)
    number = put(fleet, "a", cpu_milli=2000)
    assert predicted_cpu(fleet, "a") == 2500
    fleet.resize(number, fleet.vector(Demand(4000, GIB)))
    assert predicted_cpu(fleet, "a") == 4500


def test_a_vm_that_was_there_takes_its_part_of_the_prediction_with_it() -> None:
    fleet = fleet_of(host("a"))
    number = put_expected(fleet, "a", "vm", Expected(cpu_milli=300))
    fleet.set_predicted({"a": Predicted(900, GIB)}, BASIS)
    assert predicted_cpu(fleet, "a") == 900
    fleet.remove(number)
    assert predicted_cpu(fleet, "a") == 600


def test_vms_that_a_prediction_does_not_count_are_added_to_it() -> None:
    fleet = fleet_of(host("a"), host("b"))
    put_expected(fleet, "a", "old", Expected(cpu_milli=300))
    put_expected(fleet, "a", "new", Expected(cpu_milli=200))
    put_expected(fleet, "b", "elsewhere", Expected(cpu_milli=100))
    fleet.set_predicted({"a": Predicted(900, GIB, counted=("old", "elsewhere", "gone"))}, BASIS)
    assert predicted_cpu(fleet, "a") == 1100


def test_less_than_nothing_is_shown_as_nothing() -> None:
    fleet = fleet_of(host("a"))
    number = put(fleet, "a", cpu_milli=2000)
    fleet.set_predicted({"a": Predicted(500, GIB)}, BASIS)
    fleet.remove(number)
    assert predicted_cpu(fleet, "a") == 0


def test_what_is_expected_of_a_vm_can_change_while_it_runs() -> None:
    fleet = fleet_of(host("a"))
    put_expected(fleet, "a", "vm", Expected(300, ends_s=50))
    fleet.set_predicted({"a": Predicted(900, GIB)}, BASIS)
    fleet.set_expected("vm", Expected(400, ends_s=20))
    assert predicted_cpu(fleet, "a") == 1000
    assert last_end(fleet, 0) == 20
    with pytest.raises(NotFound):
        fleet.set_expected("gone", Expected())


def test_the_last_end_is_that_of_the_vm_that_stays_longest() -> None:
    fleet = fleet_of(host("a"))
    assert last_end(fleet, 0) is None
    put_expected(fleet, "a", "short", Expected(ends_s=100))
    long = put_expected(fleet, "a", "long", Expected(ends_s=900))
    assert last_end(fleet, 0) == 900
    fleet.remove(long)
    assert last_end(fleet, 0) == 100
    put(fleet, "a")
    assert last_end(fleet, 0) is None, "one that nobody knows the end of may stay for ever"


def test_undo_brings_back_predictions_expectations_bounds_and_digest() -> None:
    fleet = fleet_of(host("a"), host("b"))
    number = put_expected(fleet, "a", "vm", Expected(300, ends_s=50))
    fleet.set_predicted({"a": Predicted(900, GIB, as_of_s=7)}, BASIS)
    before = prediction(fleet, 0), last_end(fleet, 0), fleet.basis
    mark = fleet.mark()
    fleet.set_expected("vm", Expected())
    fleet.set_predicted({"b": Predicted(1, 1)}, PredictionBasis("sha256:2"))
    fleet.register(host("c"))
    fleet.remove(number)
    fleet.set_pressure_bounds({"cpu": 0})
    fleet.undo(mark)
    assert (prediction(fleet, 0), last_end(fleet, 0), fleet.basis) == before
    assert prediction(fleet, 1) is None
    assert not fleet.hosts.bounds_pressure
    check(fleet)


def test_a_snapshot_has_what_is_foreseen_and_goes_its_own_way() -> None:
    fleet = fleet_of(host("a"))
    number = put_expected(fleet, "a", "vm", Expected(300, ends_s=50))
    fleet.set_predicted({"a": Predicted(900, GIB)}, BASIS)
    fleet.remove(number)
    other = fleet.snapshot()
    assert other.basis == BASIS
    put_expected(other, "a", "new", Expected(100, ends_s=9))
    assert (last_end(other, 0), last_end(fleet, 0)) == (9, None)
    assert (predicted_cpu(other, "a"), predicted_cpu(fleet, "a")) == (700, 600)
    check(other)


def test_columns_that_grow_keep_what_is_foreseen() -> None:
    fleet = fleet_of(host("h0"))
    put_expected(fleet, "h0", "vm", Expected(300, ends_s=50))
    fleet.set_predicted({"h0": Predicted(900, GIB, cpu_range=(500, 990))}, BASIS)
    for number in range(1, 40):
        fleet.register(host(f"h{number}"))
    fleet.vector(Demand(1, 1, extended=(("licences", 1),)))
    found = prediction(fleet, 0)
    assert found is not None
    assert (found.cpu_milli, found.cpu_range) == (900, (500, 990))
    assert (last_end(fleet, 0), last_end(fleet, 39)) == (50, None)
    check(fleet)


def test_loading_many_vms_at_once_counts_them_as_unknown() -> None:
    fleet = fleet_of(host("a"), host("b"))
    fleet.set_predicted({"a": Predicted(0, 0), "b": Predicted(0, 0)}, BASIS)
    demand = np.array([fleet.vector(Demand(1000, GIB))] * 3)
    fleet.charge_many(["x", "y", "z"], np.array([0, 0, 1], np.int32), demand)
    assert (predicted_cpu(fleet, "a"), predicted_cpu(fleet, "b")) == (2000, 1000)
    check(fleet)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda: Expected(cpu_milli=-1), "expected cpu_milli -1"),
        (lambda: Expected(ends_s=LATEST_S + 1), "expected ends_s"),
        (lambda: Predicted(2**49, 0), "predicted cpu_milli"),
        (lambda: Predicted(1, 1, cpu_range=(5, 4)), "the lower end of a range, 5"),
        (lambda: PredictionBasis("x" * 129), "129 characters"),
        (lambda: PredictionBasis("x", 1001), "quantile_milli 1001"),
        (lambda: Fleet().set_pressure_bounds({"gpu": 5}), "no pressure 'gpu'"),
        (lambda: Fleet().set_pressure_bounds({"cpu": 101}), "the bound 101 on cpu"),
        (lambda: Fleet().set_pressure_bounds({"cpu": float("nan")}), "the bound nan"),
    ],
)
def test_what_cannot_be_is_refused(broken, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        broken()


def test_a_prediction_of_an_unknown_host_changes_nothing() -> None:
    fleet = fleet_of(host("a"))
    fleet.set_predicted({"a": Predicted(500, GIB)}, BASIS)
    with pytest.raises(NotFound):
        fleet.set_predicted({"a": Predicted(1, 1), "gone": Predicted(1, 1)})
    assert predicted_cpu(fleet, "a") == 500


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), *(st.none() | st.integers(0, 9) for _ in range(6))),
        min_size=1,
        max_size=8,
    )
)
def test_expectations_of_many_are_those_of_each(vms: list[Any]) -> None:
    one, many = (fleet_of(host("a"), host("b")) for _ in range(2))
    for fleet in (one, many):
        fleet.set_predicted({"a": Predicted(500, GIB)}, BASIS)
        for number, (where, *told) in enumerate(vms):
            put_expected(fleet, where, f"vm{number}", Expected(*told[:3]))
    for number, (_, *told) in enumerate(vms):
        one.set_expected(f"vm{number}", Expected(*told[3:]))
    numbers = np.array([many.vm_number(f"vm{at}") for at in range(len(vms))], np.int64)
    columns = np.array([expected_vector(Expected(*told[3:])) for _, *told in vms], np.int64)
    mark, before = many.mark(), many.hosts.arrays.predicted.copy()
    many.set_expected_many(numbers, columns)
    for name in "ab":
        row = one.row(name)
        assert prediction(many, row) == prediction(one, row)
        assert last_end(many, row) == last_end(one, row)
    check(many)
    many.undo(mark)
    assert (many.hosts.arrays.predicted == before).all()
    check(many)
