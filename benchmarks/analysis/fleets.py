"""Rows on speed: a fleet's series detected, forecast, updated and grouped on one core."""

from collections.abc import Iterator

import numpy as np

from benchmarks.analysis.sizes import Sizes
from benchmarks.analysis.synthetic import JUDGING, POINTS, periodic
from benchmarks.engine.measuring import Job, timed
from benchmarks.results import Result, at_most
from roost.analysis.correlation import peak_groups
from roost.analysis.forecasting import LiveForecasts

_DIFFERENT = 250
_AHEAD = 288


def fleet(count: int) -> np.ndarray:
    """Return so many series: some that were drawn, again and again with noise of their own."""
    some = [periodic(np.random.default_rng(JUDGING + at)).values for at in range(_DIFFERENT)]
    rng = np.random.default_rng(JUDGING)
    base = np.array(some)[np.arange(count) % _DIFFERENT]
    return np.asarray(base + 0.05 * rng.standard_normal((count, POINTS)))


def speed(sizes: Sizes) -> Iterator[Result]:
    """Measure CPU time of one core; kernels are compiled before."""
    values = fleet(sizes.fleet)
    LiveForecasts(values[:4].copy()).update(values[:4, -1].copy())
    LiveForecasts(values[:4].copy()).forecast(_AHEAD)
    with timed() as span:
        live = LiveForecasts(values)
        told = live.forecast(_AHEAD)
    assert np.isfinite(told.point).all()
    note = f"{sizes.fleet:,} series of {POINTS:,} points, {_AHEAD} steps ahead; CPU time"
    yield at_most(
        "detect and forecast 10k", span.cpu_s, "s", sizes.goal(5), sizes.goal(2), note=note
    )
    sample = np.nan_to_num(values[:, -1])
    with timed() as span:
        for _ in range(5):
            live.update(sample)
    yield at_most("update", span.cpu_s / 5, "s", sizes.goal(0.2), note=f"{sizes.fleet:,} series")
    del live, told
    with timed() as span:
        groups = peak_groups(values, np.random.default_rng(1), 0.8)
    note = f"{sizes.fleet:,} series, {len(groups)} groups"
    yield at_most("peak groups", span.cpu_s, "s", None, note=note)


def jobs(sizes: Sizes) -> list[Job]:
    """Return the one job of this topic."""
    return [Job("detect and forecast 10k", lambda: speed(sizes))]
