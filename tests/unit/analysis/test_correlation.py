"""Who moves together is found by sketches, and equals what comparing all pairs finds."""

import numpy as np
import pytest

from roost.analysis.correlation import alike, bottleneck, lagged, peak_groups, related, shapes


def families(count: int, each: int, noise: float) -> np.ndarray:
    """Return series of `count` families, whose members differ by noise."""
    rng = np.random.default_rng(3)
    base = rng.standard_normal((count, 168))
    members = np.repeat(base, each, axis=0)
    return np.asarray(10 + members + noise * rng.standard_normal(members.shape))


@pytest.mark.parametrize("lag", [-7, 0, 5])
def test_a_lag_is_found_with_its_sign(lag: int) -> None:
    rng = np.random.default_rng(1)
    first = rng.standard_normal(400)
    second = np.roll(first, lag) + 0.2 * rng.standard_normal(400)
    found = lagged(first, second, 20)
    assert found.lag == lag
    assert found.correlation > 0.9


def test_a_mirror_correlates_below_zero_and_a_constant_not_at_all() -> None:
    series = np.random.default_rng(2).standard_normal(100)
    assert lagged(series, -series, 5).correlation == pytest.approx(-1.0, abs=1e-6)
    assert lagged(series, np.full(100, 3.3), 5).correlation == 0.0
    assert lagged(series[:3], series[:3], 5).correlation == 0.0


def test_sketches_find_nearly_all_pairs_that_all_pairs_find() -> None:
    values = families(40, 8, 0.25)
    shape = shapes(values)
    first, second = np.nonzero(np.triu(shape @ shape.T >= 0.9, 1))
    wanted = set(zip(first.tolist(), second.tolist(), strict=True))
    one, two, told = alike(values, np.random.default_rng(4), 0.9)
    found = set(zip(one.tolist(), two.tolist(), strict=True))
    assert found <= wanted
    assert len(found) >= 0.95 * len(wanted)
    np.testing.assert_allclose(told, (shape @ shape.T)[one, two])


def test_groups_are_the_families_and_the_same_every_time() -> None:
    values = families(12, 5, 0.1)
    groups = peak_groups(values, np.random.default_rng(5))
    assert sorted(groups) == [tuple(range(at, at + 5)) for at in range(0, 60, 5)]
    assert groups == peak_groups(values, np.random.default_rng(5))


def test_constants_gaps_and_one_series_are_in_no_group() -> None:
    values = np.stack([np.ones(50), np.ones(50), np.full(50, np.nan)])
    assert peak_groups(values, np.random.default_rng(1)) == []
    assert peak_groups(values[:1], np.random.default_rng(1)) == []


def test_what_waits_when_cpu_peaks_is_named() -> None:
    rng = np.random.default_rng(6)
    cpu = rng.uniform(10, 50, 1000)
    cpu[::20] = 95.0
    disk = rng.uniform(0, 5, 1000) + 40 * (cpu > 90)
    found = bottleneck(cpu, {"disk_io": disk, "network": rng.uniform(0, 5, 1000)})
    assert found is not None
    assert found.resource == "disk_io"
    assert found.share > 0.9


def test_nothing_waits_where_nothing_rises_or_too_little_is_known() -> None:
    rng = np.random.default_rng(7)
    cpu = rng.uniform(0, 50, 500)
    assert bottleneck(cpu, {"network": rng.uniform(0, 5, 500)}) is None
    assert bottleneck(cpu[:10], {"network": cpu[:10]}) is None


def test_waiting_that_is_nothing_but_in_peaks_is_named() -> None:
    cpu = np.random.default_rng(8).uniform(10, 50, 1000)
    cpu[::20] = 95.0
    waiting = np.where(cpu > 90, 30.0, 0.0)
    found = bottleneck(cpu, {"cpu": waiting, "never": np.zeros(1000)}, least=1.0)
    assert found is not None
    assert (found.resource, found.share) == ("cpu", 1.0)
    assert bottleneck(cpu, {"cpu": waiting}, least=31.0) is None


def test_resources_that_follow_each_other_are_told_with_who_leads() -> None:
    rng = np.random.default_rng(5)
    disk = rng.gamma(1.0, 10.0, 900)
    cpu = np.roll(disk, 6) + rng.normal(0, 1, 900)  # half an hour later
    found = related({"cpu": cpu, "disk io": disk, "network": rng.uniform(0, 5, 900)}, 24)
    assert [(pair.first, pair.second, pair.lag) for pair in found] == [("disk io", "cpu", 6)]
    assert found[0].correlation > 0.9
    known = np.where(np.arange(900) < 200, cpu, np.nan)  # less than a day
    assert related({"cpu": known, "disk io": disk}, 24) == []
