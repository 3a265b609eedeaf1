"""Days of VMs: the course of a VM's cpu through the parts of a day, where its days are alike.

From a week of five-minute means to `DayCourse`, which the engine compares with the days of a VM's
neighbours. A VM whose days differ more than their parts do has none, and neither has one that uses
about the same all day: nothing could be gained from it.
"""

from collections.abc import Sequence

import numpy as np

from roost.analysis.grid import Floats
from roost.model.outlook import DAY_LEVELS, DAY_PARTS, MOST_PEAK_MILLI, DayCourse

_DAY_S = 86_400
#: Days that must have been seen of every part, and how much of the variation parts must explain.
LEAST_DAYS, LEAST_EXPLAINED = 3, 0.5
#: How far the lowest part lies below the highest at least, as a share of that.
LEAST_DEPTH = 0.2


def day_of(values: Floats, end_s: int, step_s: int) -> DayCourse | None:
    """Return the day of a series (millicores) whose last step ends at `end_s`, or None."""
    at = end_s - step_s * np.arange(len(values), 0, -1)
    day, part = at // _DAY_S - at[0] // _DAY_S, at % _DAY_S * DAY_PARTS // _DAY_S
    known = np.isfinite(values)
    cells = (day * DAY_PARTS + part)[known]
    size = (int(day[-1]) + 1) * DAY_PARTS
    count = np.bincount(cells, minlength=size).reshape(-1, DAY_PARTS)
    total = np.bincount(cells, weights=values[known], minlength=size).reshape(-1, DAY_PARTS)
    # Half of a part must have been read for its mean to count.
    enough = 2 * count * step_s * DAY_PARTS >= _DAY_S
    if (enough.sum(axis=0) < LEAST_DAYS).any():
        return None
    means = np.where(enough, total / np.maximum(count, 1), np.nan)
    course = np.nanmean(means, axis=0)
    around = np.nansum((means - np.nanmean(means)) ** 2)
    rest = np.nansum((means - course) ** 2)
    if around <= 0 or 1 - rest / around < LEAST_EXPLAINED:
        return None
    return course_of(course)


def course_of(amounts: Floats) -> DayCourse | None:
    """Return the use by part of the day (millicores) as a course; None if it is about even."""
    peak = min(MOST_PEAK_MILLI, int(np.ceil(amounts.max())))
    if peak < 1 or amounts.min() > (1 - LEAST_DEPTH) * amounts.max():
        return None
    levels = np.clip(np.rint(DAY_LEVELS * amounts / peak), 0, DAY_LEVELS)
    return DayCourse(peak, tuple(int(level) for level in levels))


def day_alike(days: Sequence[DayCourse | None]) -> DayCourse | None:
    """Return the day of a VM like these: their mean, if most of them have one and it is uneven."""
    known = [day.amounts() for day in days if day is not None]
    if 2 * len(known) <= len(days):
        return None
    return course_of(np.array(known, np.float64).mean(axis=0))
