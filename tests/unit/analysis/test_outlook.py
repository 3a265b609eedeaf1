"""What the engine is told of hosts and VMs: never less than is known, and nothing that is not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.analysis.forecasting import forecast_batch
from roost.analysis.grid import Floats
from roost.analysis.outlook import (
    DAY_STEPS,
    LEAST_ALIKE,
    POINTS,
    STEP_S,
    Ahead,
    HostSeries,
    Use,
    VMSeries,
    expected_alike,
    foresee,
    outlook_of,
)
from roost.model.outlook import Expected

AHEAD = Ahead(POINTS * STEP_S)
STEPS = np.arange(POINTS)
MEMORY = np.full(POINTS, 1e9)


def noise(seed: int, level: float = 20.0) -> Floats:
    return np.random.default_rng(seed).normal(0, level, POINTS)


def by_day(*hours: float) -> Floats:
    """Return a series that repeats each day, in equal parts of it."""
    return np.array(hours)[STEPS % DAY_STEPS * len(hours) // DAY_STEPS].astype(np.float64)


def vm(name: str, cpu: Floats, memory: Floats = MEMORY) -> VMSeries:
    return VMSeries(name, Use(np.maximum(cpu, 0), memory))


def host(*vms: VMSeries, beside: float = 0.0, name: str = "h") -> HostSeries:
    cpu, memory = np.full(POINTS, beside), np.zeros(POINTS)
    for each in vms:
        cpu, memory = cpu + np.nan_to_num(each.use.cpu), memory + np.nan_to_num(each.use.memory)
    return HostSeries(name, Use(cpu, memory), vms)


def test_peaks_at_different_hours_are_not_added_up() -> None:
    # The week ends at midnight: in the next four hours the first works and the second rests.
    early = by_day(1000, 1000, 100, 100, 100, 100) + noise(1)
    late = by_day(100, 100, 1000, 1000, 100, 100) + noise(2)
    apart, expected = foresee([host(vm("a", early), vm("b", late))], AHEAD)
    both, _ = foresee([host(vm("a", early), vm("c", early + noise(3)))], AHEAD)
    assert expected["a"].cpu_milli == pytest.approx(1000, rel=0.1)
    assert apart["h"].cpu_milli == pytest.approx(1100, rel=0.1)
    assert both["h"].cpu_milli == pytest.approx(2000, rel=0.1)


def test_a_host_of_many_vms_is_told_less_than_the_sum_of_what_is_told_of_them() -> None:
    vms = [vm(f"vm{at}", 500 + noise(at, 150)) for at in range(20)]
    found, expected = foresee([host(*vms)], AHEAD)
    each = sum(told.cpu_milli or 0 for told in expected.values())
    assert 10_000 < found["h"].cpu_milli < 0.9 * each


def test_what_a_machine_uses_beside_its_vms_is_on_top() -> None:
    found, _ = foresee([host(vm("a", 500 + noise(1)), beside=700)], AHEAD)
    assert found["h"].cpu_milli == pytest.approx(1200, rel=0.1)
    alone, _ = foresee([host(beside=700)], AHEAD)
    assert alone["h"].cpu_milli == pytest.approx(700, rel=0.01)
    assert alone["h"].counted == ()


def test_of_a_host_whose_readings_stopped_nothing_is_told() -> None:
    well = host(vm("a", 500 + noise(1)))
    silent = Use(well.use.cpu.copy(), well.use.memory)
    silent.cpu[-AHEAD.fresh_steps :] = np.nan
    assert foresee([HostSeries("h", silent, well.vms)], AHEAD)[0] == {}


def daily(seed: int, days: float = POINTS / DAY_STEPS) -> tuple[Floats, Floats]:
    """Return a series that swings by day, known for the last days, and the next four hours."""
    random = np.random.default_rng(seed)
    time = np.arange(POINTS + AHEAD.steps) / DAY_STEPS + random.random()
    course = 500 + 300 * np.sin(2 * np.pi * time) + random.normal(0, 30, len(time))
    course[: POINTS - int(days * DAY_STEPS)] = np.nan
    return course[:POINTS], course[POINTS:]


@pytest.mark.parametrize("days", [2, 3, 4, 7], ids=str)
def test_of_a_young_vm_the_time_before_it_is_not_learnt(days: float) -> None:
    told = []
    for seed in range(20):
        known, came = daily(seed, days)
        found, expected = foresee([host(vm("a", known))], AHEAD)
        cpu = expected["a"].cpu_milli
        assert cpu is not None
        assert found["h"].cpu_milli == pytest.approx(cpu, abs=1)
        told.append(cpu / np.quantile(came, 0.9))
    assert 1.0 <= np.mean(told) <= 1.25


def test_vms_of_any_age_are_told_alike_in_any_order_and_full_weeks_as_they_are() -> None:
    ages = (7.0, 1.0, 3.0, 7.0, 0.9, 3.5, 5.0)
    vms = [vm(f"{at}", daily(at, days)[0]) for at, days in enumerate(ages)]
    told = foresee([host(*vms)], AHEAD)[1]
    assert foresee([host(*vms[::-1])], AHEAD)[1] == told
    for one in vms:
        assert foresee([host(one)], AHEAD)[1] == {one.name: told[one.name]}
    for at in (0, 3):
        high = forecast_batch(vms[at].use.cpu[None], AHEAD.steps, coverage=0.8).high
        assert told[f"{at}"].cpu_milli == np.ceil(high.max())


@pytest.mark.parametrize("known", [0, 5, 23], ids=str)
def test_a_vm_of_which_too_little_is_known_is_neither_told_nor_counted(known: int) -> None:
    cpu = 500 + noise(2)
    cpu[: POINTS - known] = np.nan
    found, expected = foresee([host(vm("a", 300 + noise(1)), vm("b", cpu))], AHEAD)
    assert "b" not in expected
    assert found["h"].counted == ("a",)  # the engine adds all that b asked for


def test_a_prediction_is_passed_about_as_seldom_as_it_says() -> None:
    """Nine of ten values of the hours that were not seen lie below what was told of a host."""
    above = []
    for seed in range(12):
        whole = [
            np.maximum(0, 400 + 300 * np.sin(np.arange(POINTS + 48) / 45.8 + at) + np.random
            .default_rng([seed, at]).normal(0, 80, POINTS + 48))
            for at in range(6)
        ]  # fmt: skip
        found, _ = foresee(
            [host(*(vm(f"{at}", each[:POINTS]) for at, each in enumerate(whole)))], AHEAD
        )
        came = np.sum([each[POINTS:] for each in whole], axis=0)
        above.append(float(np.mean(came > found["h"].cpu_milli)))
    assert np.mean(above) < 0.1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 1), st.integers(0, 4))
def test_any_series_is_told_in_bounds_and_the_same_again(
    seed: int, missing: float, vms: int
) -> None:
    random = np.random.default_rng(seed)

    def wild() -> Floats:
        series = random.choice([0.0, 1.0, 1e6, 1e14], POINTS) * random.random(POINTS)
        series[random.random(POINTS) < missing] = np.nan
        return series

    home = HostSeries(
        "h", Use(wild(), wild()), tuple(vm(f"{at}", wild(), wild()) for at in range(vms))
    )
    told = foresee([home], AHEAD)
    assert foresee([home], AHEAD) == told
    classes = {f"{at}": ("small", "shop") for at in range(vms)}
    assert outlook_of(*told, classes, AHEAD) == outlook_of(*told, classes, AHEAD)
    for predicted in told[0].values():
        assert predicted.cpu_range is not None
        assert predicted.cpu_range[1] == predicted.cpu_milli
        assert predicted.as_of_s is not None
        assert predicted.as_of_s <= AHEAD.origin_s


def test_hosts_told_together_are_told_as_each_alone() -> None:
    homes = [
        host(vm(f"{name}-vm", 300 * at + noise(at)), name=name) for at, name in enumerate("abc")
    ]
    together = foresee(homes, AHEAD)
    for each in homes:
        alone = foresee([each], AHEAD)
        assert alone[0][each.name] == together[0][each.name]
        assert alone[1].items() <= together[1].items()


def test_equal_outlooks_have_equal_digests_and_others_others() -> None:
    told = foresee([host(vm("a", 300 + noise(1)))], AHEAD)
    one = outlook_of(*told, {"a": [("small",)]}, AHEAD)
    assert outlook_of(*told, {"a": [("small",)]}, AHEAD).basis == one.basis
    later = outlook_of(*told, {"a": [("small",)]}, Ahead(AHEAD.origin_s + STEP_S))
    assert later.basis.digest != one.basis.digest
    more = outlook_of(told[0], {**told[1], "b": Expected(1, 1)}, {}, AHEAD)
    assert more.basis.digest != one.basis.digest


def test_vms_of_a_size_are_told_when_there_are_enough() -> None:
    told = {f"{at}": Expected(100 * at, 10) for at in range(1, LEAST_ALIKE + 1)}
    classes = dict.fromkeys(told, (("large",),))
    assert expected_alike(told, classes) == {("large",): Expected(460, 10)}
    assert expected_alike({"1": told["1"]}, classes) == {}


def test_a_project_with_enough_vms_of_a_size_is_told_apart_from_others_of_that_size() -> None:
    told = {f"shop{at}": Expected(100, 10) for at in range(5)}
    told |= {f"lab{at}": Expected(900, 10) for at in range(4)}
    path = {name: ("large", name[:-1], "image") for name in told}
    classes = {name: [each[:length] for length in (3, 2, 1)] for name, each in path.items()}
    found = expected_alike(told, classes)
    assert found[("large", "shop")] == found[("large", "shop", "image")] == Expected(100, 10)
    assert found[("large",)] == Expected(900, 10)
    assert ("large", "lab") not in found
