"""Forecasts know the past alone, say when they do not know, and are the same bytes every time."""

import numpy as np
import pytest

from roost.analysis.forecasting import LiveForecasts, cold_start, forecast_batch
from roost.base.errors import InvalidRequest

pytestmark = pytest.mark.kernel
_TIME = np.arange(2016)


def days(rng: np.random.Generator, count: int = 3) -> np.ndarray:
    """Return a week of days with noise."""
    day = 20 + 10 * np.sin(2 * np.pi * _TIME / 288)
    return np.asarray(day + rng.standard_normal((count, 2016)))


def test_a_day_is_forecast_within_its_noise() -> None:
    told = forecast_batch(days(np.random.default_rng(1)), 288)
    truth = 20 + 10 * np.sin(2 * np.pi * (2016 + np.arange(288)) / 288)
    assert np.abs(told.point - truth).mean() < 1.0
    assert told.model_of(0, 288).family not in ("recent_level", "exponential_smoothing")


def test_a_forecast_never_sees_what_comes_after_its_origin() -> None:
    values = days(np.random.default_rng(2))
    before = forecast_batch(values[:, :1500], 50)
    values[:, 1500:] = 1e6
    after = forecast_batch(values[:, :1500], 50)
    np.testing.assert_array_equal(before.point, after.point)
    np.testing.assert_array_equal(before.high, after.high)


def test_the_same_series_give_the_same_bytes_alone_and_together() -> None:
    values = days(np.random.default_rng(3), 40)
    together = forecast_batch(values, 288)
    again = forecast_batch(values[17:18].copy(), 288)
    assert together.point[17].tobytes() == again.point[0].tobytes()
    assert together.low[17].tobytes() == again.low[0].tobytes()


@pytest.mark.parametrize(
    "values",
    [np.ones((2, 5)), np.full((2, 500), np.nan), np.zeros((2, 0)), np.full((1, 3), 7.0)],
    ids=["few", "gaps only", "nothing", "three"],
)
def test_what_is_too_short_has_no_bounds(values: np.ndarray) -> None:
    told = forecast_batch(values, 12)
    assert np.isfinite(told.point).all()
    assert (told.low == 0.0).all()
    assert np.isinf(told.high).all()


@pytest.mark.parametrize("coverage", [0.8, 0.9])
@pytest.mark.parametrize("flat", [True, False], ids=["noise", "daily"])
@pytest.mark.parametrize("known", [72, 144, 231, 288, 330, 400, 450, 500, 576], ids=str)
def test_bounds_of_a_young_series_hold_or_there_are_none(
    known: int, flat: bool, coverage: float
) -> None:
    rng = np.random.default_rng(known)
    course = np.sin(2 * np.pi * (np.arange(known + 288) / 288 + rng.random((100, 1))))
    values = 20 + 10 * course * (not flat) + rng.standard_normal((100, known + 288))
    told = forecast_batch(values[:, :known], 288, coverage=coverage)
    held = (values[:, known:] >= told.low) & (values[:, known:] <= told.high)
    for begin, end in ((0, 12), (12, 72), (72, 288)):
        bounded = np.isfinite(told.high[:, begin:end])
        if bounded.any():
            assert held[:, begin:end][bounded].mean() >= coverage - 0.15
            assert (told.high - told.low)[:, begin:end][bounded].min() > 0.0
    assert np.isfinite(told.high[:, :12]).any() == (known >= 400)
    assert np.isfinite(told.high).all() == (known >= 576)


def test_a_constant_is_told_exactly() -> None:
    told = forecast_batch(np.full((1, 600), 4.25), 24)
    assert (told.point == 4.25).all()
    assert (told.high == 4.25).all()


def test_updates_follow_a_new_level_and_count_misses() -> None:
    live = LiveForecasts(days(np.random.default_rng(4), 2), room=10)
    narrow = live.update(np.array([20.0, 20.0]))
    for _ in range(60):
        following = live.update(np.array([500.0, np.nan]))
    assert following[0, 0] > 100
    assert following[0, 2] - following[0, 1] > 2 * (narrow[0, 2] - narrow[0, 1])
    assert following[1, 0] < 40


def test_nine_of_ten_samples_lie_in_the_live_interval() -> None:
    rng = np.random.default_rng(5)
    live = LiveForecasts(np.abs(30 + 3 * rng.standard_normal((30, 600))))
    following, hits = live.update(np.full(30, 30.0)), []
    for _ in range(300):
        sample = np.abs(30 + 6 * rng.standard_normal(30))  # twice the noise that was learnt
        hits.append((sample >= following[:, 1]) & (sample <= following[:, 2]))
        following = live.update(sample)
    assert 0.86 < np.mean(hits[100:]) < 0.94


def test_a_new_vm_is_told_by_its_peers_at_its_own_level() -> None:
    peers = days(np.random.default_rng(6), 20)
    unknown = cold_start(peers, np.empty(0), 288)
    own = cold_start(peers, np.full(240, 40.0), 288)
    assert unknown[0].argmax() == pytest.approx(72, abs=30)
    assert own[0].mean() > 1.5 * unknown[0].mean()
    assert (own[1] <= own[0]).all()
    assert (own[0] <= own[2]).all()


def test_a_new_vm_seen_at_noon_is_compared_with_its_peers_at_noon() -> None:
    day = np.where(np.arange(288 * 3) % 288 >= 200, 80.0, 10.0)  # it is the end of a busy evening
    peers = np.tile(day, (5, 1))
    own = np.full(30, 80.0)
    own[3] = np.nan
    point, low, high = cold_start(peers, own, 288)
    np.testing.assert_allclose(point, day[:288])
    np.testing.assert_allclose(low, point)
    np.testing.assert_allclose(high, point)


def test_without_peers_and_samples_nothing_is_claimed() -> None:
    told = cold_start(np.empty((0, 288)), np.empty(0), 3)
    assert np.isnan(told[0]).all()
    assert np.isinf(told[1:]).all()


@pytest.mark.parametrize(("ahead", "coverage"), [(0, 0.9), (5000, 0.9), (5, 1.0)])
def test_a_question_out_of_bounds_is_refused(ahead: int, coverage: float) -> None:
    with pytest.raises(InvalidRequest):
        forecast_batch(np.ones((1, 50)), ahead, coverage=coverage)
