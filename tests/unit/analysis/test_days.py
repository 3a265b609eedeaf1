"""The day of a VM: told where its days are alike and uneven, and of no other."""

import numpy as np
import pytest

from roost.analysis.days import course_of, day_alike, day_of
from roost.model.outlook import DAY_LEVELS, DayCourse
from roost.placement.peaks import unpacked

STEP_S, WEEK = 300, 2016
END_S = 20_000 * 86_400


def daily(peak_hour: float, mean: float = 1000, depth: float = 800) -> np.ndarray:
    hours = np.arange(WEEK) * STEP_S / 3600
    return mean + depth * np.cos(2 * np.pi * (hours - peak_hour) / 24)


@pytest.mark.parametrize("end_s", [END_S, END_S + 5 * 3600])
def test_a_day_peaks_in_the_part_in_which_the_vm_does(end_s: int) -> None:
    shift_h = (end_s - END_S) / 3600  # the week begins so many hours after midnight
    found = day_of(daily(13.5 - shift_h), end_s, STEP_S)
    assert found is not None
    assert found.levels.index(DAY_LEVELS) == 4  # 12 to 15 o'clock
    assert abs(found.peak_milli - 1780) < 20


def test_days_that_differ_even_days_and_short_series_have_no_course() -> None:
    rng = np.random.default_rng(1)
    assert day_of(rng.uniform(0, 1, 7).repeat(288) * 1000, END_S, STEP_S) is None
    assert day_of(np.full(WEEK, 700.0), END_S, STEP_S) is None
    assert day_of(daily(9, depth=50), END_S, STEP_S) is None
    gone = daily(9)
    gone[: WEEK - 2 * 288] = np.nan
    assert day_of(gone, END_S, STEP_S) is None
    assert day_of(np.full(WEEK, np.nan), END_S, STEP_S) is None


def test_vms_alike_share_a_day_only_if_most_have_one_and_at_the_same_hours() -> None:
    early, late = (day_of(daily(hour), END_S, STEP_S) for hour in (1.5, 13.5))
    assert day_alike([early, early, None]) == early
    assert day_alike([early, None]) is None
    assert day_alike([early, late]) is None


def test_a_course_survives_its_packing() -> None:
    course = DayCourse(2**22 - 1, (0, 31, 1, 30, 2, 29, 3, 28))
    packed = np.array([course.packed()], np.int64)
    assert unpacked(packed)[0].tolist() == list(course.amounts())
    assert course_of(np.zeros(8)) is None
