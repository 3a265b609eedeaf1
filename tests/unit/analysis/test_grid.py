"""Whatever the samples are like, they become a grid, and what was wrong is counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.analysis.grid import Cleaning, filled, regular
from roost.base.errors import InvalidRequest


def test_samples_of_a_step_are_averaged_and_gaps_are_unknown() -> None:
    series = regular([0, 7, 10, 31], [1.0, 3.0, 5.0, 7.0], 10)
    np.testing.assert_array_equal(series.values, [2.0, 5.0, np.nan, 7.0])
    assert series.cleaning == Cleaning(samples=4, merged=1, gaps=1)
    np.testing.assert_array_equal(series.times_s, [0, 10, 20, 30])


def test_late_and_repeated_samples_merge_and_the_last_one_sent_counts() -> None:
    series = regular([20, 0, 10, 10], [3.0, 1.0, 2.0, 9.0], 10)
    np.testing.assert_array_equal(series.values, [1.0, 9.0, 3.0])
    assert (series.cleaning.out_of_order, series.cleaning.duplicates) == (3, 1)


@pytest.mark.parametrize(
    ("value", "counted"),
    [(float("nan"), "not_finite"), (float("inf"), "not_finite"), (-1.0, "negative")],
)
def test_values_that_cannot_be_are_dropped_and_counted(value: float, counted: str) -> None:
    series = regular([0, 10, 20], [1.0, value, 3.0], 10)
    np.testing.assert_array_equal(series.values, [1.0, np.nan, 3.0])
    assert getattr(series.cleaning, counted) == 1
    assert series.cleaning.dropped == 1


def test_a_counter_becomes_a_rate_and_its_reset_is_a_gap() -> None:
    series = regular([0, 10, 20, 30], [100.0, 150.0, 20.0, 50.0], 10, counter=True)
    np.testing.assert_array_equal(series.values, [5.0, np.nan, 3.0])
    assert series.cleaning.resets == 1


def test_a_clock_that_jumped_by_years_costs_its_own_samples_only() -> None:
    times = [*range(0, 1000, 10), 10**9, 2**40]
    series = regular(times, np.ones(len(times)), 10, most_points=1000)
    assert len(series.values) == 100
    assert series.cleaning.jumps == 2


def test_no_sample_and_one_sample_are_series_too() -> None:
    assert len(regular([], [], 10).values) == 0
    one = regular([5], [2.0], 10)
    assert one.values.tolist() == [2.0]
    assert one.is_constant


@pytest.mark.parametrize(
    ("times", "values", "step"),
    [([0, 1], [1.0], 10), ([0], [1.0], 0), ([0.5], [1.0], 10)],
    ids=["lengths differ", "step of nothing", "times are no integers"],
)
def test_what_is_no_series_is_refused(times: list[int], values: list[float], step: int) -> None:
    with pytest.raises(InvalidRequest):
        regular(times, values, step)


_samples = st.lists(
    st.tuples(st.integers(-(2**62), 2**62) | st.integers(0, 5000), st.floats(width=64)),
    max_size=60,
)


@given(_samples, st.integers(1, 1000), st.booleans())
def test_any_samples_are_cleaned_and_every_one_is_accounted_for(
    samples: list[tuple[int, float]], step_s: int, counter: bool
) -> None:
    times = [at for at, _ in samples]
    series = regular(times, [v for _, v in samples], step_s, counter=counter, most_points=500)
    clean = series.cleaning
    assert len(series.values) <= 501
    assert np.isfinite(series.values).sum() == len(series.values) - clean.gaps
    if not counter:
        infinite = len(series.values) - clean.gaps + clean.merged + clean.dropped
        assert infinite == clean.samples or np.abs([v for _, v in samples]).max() > 1e300
        assert np.all(series.values[np.isfinite(series.values)] >= 0)


def test_gaps_are_bridged_by_straight_lines_and_nothing_is_zero() -> None:
    batch = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    np.testing.assert_array_equal(filled(batch), [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])


def test_gaps_are_bridged_as_row_by_row() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(5.0, 1.0, (40, 60))
    for row, share in enumerate(np.linspace(0.0, 1.0, 40)):
        values[row, rng.random(60) < share] = np.nan
    values[5, :7], values[6, -9:], values[7] = np.nan, np.nan, np.nan
    found = filled(values)
    steps = np.arange(60)
    for row, series in enumerate(values):
        there = np.isfinite(series)
        plain = np.interp(steps, steps[there], series[there]) if there.any() else np.zeros(60)
        assert found[row] == pytest.approx(plain, abs=1e-12)
    assert (filled(np.asfortranarray(values)) == found).all()
    assert filled(values[:0]).shape == (0, 60)
    assert (filled(np.full((2, 3), np.nan)) == 0.0).all()
