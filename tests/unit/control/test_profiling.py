"""What a profile says of a VM's resources together, on courses that are known."""

import math

import msgspec
import numpy as np
import pytest

from roost.analysis.outlook import POINTS
from roost.control.learning.profiling import (
    DISK,
    NETWORK,
    OF_ONE,
    WAITING,
    Beside,
    WeekOfVM,
    profile_of,
)
from roost.ledger.schema.rows import VMRow
from roost.wire.profiles import ProfileBody


def week(**changes: object) -> WeekOfVM:
    """Return a week without disk and network, in which the cpu peaks one step of twenty."""
    rng = np.random.default_rng(1)
    figures = {name: np.zeros(POINTS) for name in OF_ONE}
    peaks = np.arange(POINTS) % 20 == 0
    cpu = np.where(peaks, 900.0, 100.0) + rng.normal(0, 5, POINTS)
    figures["cpu_milli.mean"] = figures["cpu_milli.p95"] = cpu
    figures["memory_bytes.mean"] = figures["memory_bytes.max"] = np.full(POINTS, 2.0**30)
    waits = np.where(peaks, 40.0, 1.0) + rng.normal(0, 0.1, POINTS)
    figures[WAITING["waiting for io"]] = waits
    return WeekOfVM(1_795_000_000_000, figures | changes)


def row() -> VMRow:
    return VMRow(
        id="vm-1",
        project="default",
        name="web",
        labels="",
        cpu_milli=1000,
        memory_bytes=2**31,
        disk_bytes=0,
        strategy="best_fit",
        priority=0,
        on_no_fit="reject",
        restart="here",
        desired="running",
        generation=1,
        created_ms=0,
    )


def test_what_waits_when_a_resource_peaks_is_told() -> None:
    found = profile_of(row(), week(), 1)
    assert [(each.peaking, each.resource) for each in found.bottlenecks] == [
        ("cpu", "waiting for io")
    ]
    assert found.bottlenecks[0].share > 0.9
    assert found.together == []


def test_resources_that_move_together_are_told() -> None:
    reads = np.roll(week().figures["cpu_milli.mean"], 3) * 1000  # a quarter of an hour later
    found = profile_of(row(), week(**{DISK[0]: reads}), 1)
    pair = found.together[0]
    assert (pair.first, pair.second, pair.lag_s) == ("cpu", "disk io", 900)
    assert pair.correlation == pytest.approx(1.0, abs=0.01)


def test_where_nobody_waits_the_resource_that_peaks_along_is_told() -> None:
    quiet = {figure: np.zeros(POINTS) for figure in WAITING.values()}
    reads = week().figures["cpu_milli.mean"] * 1000
    found = profile_of(row(), week(**quiet, **{DISK[0]: reads}), 1)
    assert [(each.peaking, each.resource) for each in found.bottlenecks] == [
        ("cpu", "disk io"),
        ("disk io", "cpu"),
    ]


def test_what_waits_and_what_peaks_along_are_both_told() -> None:
    reads = week().figures["cpu_milli.mean"] * 1000
    found = profile_of(row(), week(**{DISK[0]: reads}), 1)
    assert [(each.peaking, each.resource) for each in found.bottlenecks] == [
        ("cpu", "waiting for io"),
        ("cpu", "disk io"),
        ("disk io", "waiting for io"),
        ("disk io", "cpu"),
    ]


def test_waiting_for_next_to_no_time_is_not_told() -> None:
    waits = week().figures[WAITING["waiting for io"]] / 100
    assert profile_of(row(), week(**{WAITING["waiting for io"]: waits}), 1).bottlenecks == []


def test_disk_io_and_network_have_profiles_and_no_size() -> None:
    day = 1e6 * (1.2 + np.sin(np.arange(POINTS) * 2 * np.pi / 288))
    gone = np.where(np.arange(POINTS) % 50 == 49, np.nan, day)
    found = profile_of(row(), week(**{DISK[1]: day, NETWORK[0]: gone}), 2)
    assert list(found.resources) == ["cpu", "memory", "disk io", "network"]
    for name, gaps in (("disk io", 0), ("network", POINTS // 50)):
        told = found.resources[name]
        assert [round(each.cycle_s / 3600) for each in told.patterns if each.cycle_s] == [24]
        assert (told.points, told.gaps) == (POINTS - gaps, gaps)
        assert told.forecast.point[0] == pytest.approx(day[0], rel=0.1)
        assert told.sizing.advised is None
    assert found.resources["cpu"].sizing.advised is not None


def test_of_a_vm_whose_pressure_was_not_read_the_resource_that_peaks_with_it_is_told() -> None:
    unread = {figure: np.full(POINTS, np.nan) for figure in WAITING.values()}
    reads = week().figures["cpu_milli.mean"] * 1000
    found = profile_of(row(), week(**unread, **{DISK[0]: reads}), 1)
    assert ("cpu", "disk io") in [(each.peaking, each.resource) for each in found.bottlenecks]


def broken_weeks() -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(9)
    one = np.full(POINTS, np.nan)
    one[-1] = 5.0
    holes = np.where(rng.random(POINTS) < 0.9, np.nan, 1e6 * rng.random(POINTS))
    other_work = np.where(np.arange(POINTS) < 1000, 0.0, 1e6 * rng.random(POINTS))
    courses = {
        "nothing": np.full(POINTS, np.nan),
        "one point": one,
        "all the same": np.full(POINTS, 3.25),
        "nothing but zeros": np.zeros(POINTS),
        "as large as may be": np.full(POINTS, 1e18) * rng.random(POINTS),
        "mostly holes": holes,
        "other work since": other_work,
    }
    return {name: dict.fromkeys(OF_ONE, course) for name, course in courses.items()}


@pytest.mark.parametrize("broken", broken_weeks().values(), ids=broken_weeks())
def test_whatever_was_read_there_is_a_profile_of_numbers(broken: dict[str, np.ndarray]) -> None:
    found = profile_of(row(), WeekOfVM(1_795_000_000_000, broken), 24)
    assert b"NaN" not in (told := msgspec.json.encode(found))
    assert msgspec.json.decode(told, type=ProfileBody) == found
    for each in found.resources.values():
        points = [*each.forecast.point, *each.forecast.low, *each.forecast.high]
        assert all(math.isfinite(value) and value >= 0 for value in points if value is not None)
        bounds = zip(each.forecast.low, each.forecast.high, strict=True)
        assert all((low is None) == (high is None) for low, high in bounds)
        assert all(0 <= pattern.confidence <= 1 for pattern in each.patterns)
        assert 0 <= each.stability <= 1


def eight_weeks(course: np.ndarray) -> Beside:
    rng = np.random.default_rng(11)
    noisy = course + rng.normal(0, 0.05, len(course))
    return Beside(hours=dict.fromkeys(OF_ONE, 100 * np.maximum(noisy, 0)))


HOURS = np.arange(8 * 168)
DAYS = 1 + 0.5 * np.sin(HOURS * 2 * np.pi / 24)


def test_a_cycle_longer_than_a_week_shows_is_told_from_the_weeks_before() -> None:
    origin_s = 1_795_000_000
    end_s = origin_s - origin_s % 3600
    # The last hour is the last of a Sunday: a day of seven is quiet, the last of them.
    weekly = DAYS * np.where(HOURS % 168 >= 144, 0.2, 1.0)
    found = profile_of(row(), week(), 1, eight_weeks(weekly))
    told = [each for each in found.resources["network"].patterns if each.cycle_s > 4 * 86_400]
    assert [round(each.cycle_s / 86_400) for each in told] == [7]
    assert told[0].confidence > 0.7
    assert 0 <= end_s - told[0].troughs_s[0] <= 86_400


@pytest.mark.parametrize(
    "course", [DAYS, np.where(HOURS < 1300, np.nan, DAYS)], ids=["days alone", "young"]
)
def test_no_slow_cycle_is_told_where_there_is_none(course: np.ndarray) -> None:
    found = profile_of(row(), week(), 1, eight_weeks(course))
    patterns = [pattern for each in found.resources.values() for pattern in each.patterns]
    assert [each for each in patterns if each.cycle_s > 80_000] == []
