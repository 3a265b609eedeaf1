"""Cycles are found for what they are: not their overtones, not noise, not what came once."""

import numpy as np
import pytest

from benchmarks.analysis.synthetic import TUNING, periodic, wave
from roost.analysis.periods import find_periods

pytestmark = pytest.mark.kernel
_TIME = np.arange(2016, dtype=np.float64)


def periods_of(values: np.ndarray) -> list[float]:
    found = find_periods(values[None]).steps[0]
    return sorted(found[found > 0].tolist())


@pytest.mark.parametrize("shape", ["sine", "day", "pulse", "square", "saw"])
@pytest.mark.parametrize("period", [288.0, 100.5, 37.25])
def test_a_cycle_of_any_shape_has_one_period(shape: str, period: float) -> None:
    rng = np.random.default_rng(5)
    values = 10 + wave(shape, _TIME / period) + 0.2 * rng.standard_normal(2016)
    assert periods_of(values) == [pytest.approx(period, rel=0.02)]


def test_days_and_weeks_are_both_found() -> None:
    time = np.arange(4032.0)
    values = wave("day", time / 144) + 0.8 * wave("sine", time / 1008)
    assert periods_of(values) == [pytest.approx(144, rel=0.02), pytest.approx(1008, rel=0.02)]


@pytest.mark.parametrize(
    "values",
    [
        np.full(2016, 3.3),
        np.linspace(0, 1e9, 2016),
        np.full(2016, np.nan),
        np.where(_TIME == 900, 100.0, 0.0),
        np.ones(20),
        np.where(_TIME == 900, 1e308, 1e-308),
    ],
    ids=["constant", "trend", "unknown", "one spike", "short", "extreme"],
)
def test_what_has_no_cycle_has_none(values: np.ndarray) -> None:
    assert periods_of(values) == []


def test_noise_with_a_memory_has_hardly_ever_a_period() -> None:
    rng = np.random.default_rng(8)
    walks = np.cumsum(rng.standard_normal((200, 2016)), axis=1)
    assert np.count_nonzero(find_periods(walks).steps[:, 0]) <= 20


def test_series_of_a_batch_do_not_see_each_other() -> None:
    batch = np.array([periodic(np.random.default_rng(TUNING + at)).values for at in range(300)])
    together = find_periods(batch).steps
    alone = np.concatenate([find_periods(batch[at : at + 1]).steps for at in range(0, 300, 37)])
    np.testing.assert_array_equal(together[::37], alone)
