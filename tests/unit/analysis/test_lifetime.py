"""What is left of a life follows from counts: Kaplan and Meier by hand on small numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.analysis.lifetime import AGES_S, LEAST_ENDED, LifeTable, LifetimeCounts
from roost.base.errors import InvalidRequest


def test_the_median_of_many_short_lives_is_found() -> None:
    counts = LifetimeCounts()
    counts.add(("web",), np.random.default_rng(1).exponential(3600, 20_000).astype(int).tolist())
    left = counts.remaining(("web",), 0)
    assert left.quantile_s(0.5) == pytest.approx(3600 * np.log(2), rel=0.1)
    assert left.survives(3600) == pytest.approx(np.exp(-1), abs=0.03)
    assert left.seen == 20_000


def test_who_has_lived_long_will_live_longer_where_lives_are_of_two_kinds() -> None:
    counts = LifetimeCounts()
    counts.add(("mixed",), [300] * 900 + [864_000] * 100)
    assert counts.remaining(("mixed",), 0).quantile_s(0.5) < 400
    assert counts.remaining(("mixed",), 7200).quantile_s(0.5) > 400_000


def test_who_lives_on_counts_as_far_as_seen() -> None:
    ended, cut = LifetimeCounts(), LifetimeCounts()
    ended.add(("job",), [1000] * 50)
    cut.add(("job",), [1000] * 50)
    cut.add(("job",), [100_000] * 50, censored=True)
    assert ended.remaining(("job",), 0).survives(5_000) < 0.1
    assert cut.remaining(("job",), 0).survives(5_000) == pytest.approx(0.5, abs=0.05)


def test_a_class_never_seen_is_told_by_the_fleet() -> None:
    counts = LifetimeCounts()
    counts.add(("web",), [600] * 100)
    assert counts.remaining(("new",), 0).quantile_s(0.5) == pytest.approx(600, rel=0.5)
    assert LifetimeCounts().remaining(("new",), 0).quantile_s(0.5) == float("inf")


def test_a_project_that_differs_from_others_of_its_shape_is_told_by_its_own_vms() -> None:
    counts = LifetimeCounts()
    counts.add(("small", "builds"), [600] * 100)
    counts.add(("small", "shops"), [864_000] * 100)
    left = [counts.remaining(("small", who), 0).quantile_s(0.5) for who in ("builds", "shops")]
    assert left[0] < 1000 < 500_000 < left[1]
    between = counts.remaining(("small", "unknown"), 0).quantile_s(0.3)
    assert between == counts.remaining(("small",), 0).quantile_s(0.3)


def test_a_class_of_one_vm_leans_on_the_coarser_one() -> None:
    counts = LifetimeCounts()
    counts.add(("small", "many"), [600] * 200)
    counts.add(("small", "one"), [864_000])
    assert counts.remaining(("small", "one"), 0).quantile_s(0.5) < 10_000
    counts.add(("small", "one"), [864_000] * 99)
    assert counts.remaining(("small", "one"), 0).quantile_s(0.5) > 500_000


def test_counts_by_age_bin_are_those_of_the_lives() -> None:
    lives, bins = LifetimeCounts(), LifetimeCounts()
    lives.add(("web", "a"), [70, 600, 6000])
    for lived in (70, 600, 6000):
        bins.add_ended(("web", "a"), int(np.searchsorted(AGES_S, lived, side="right")) - 1, 1.0)
    for path in ((), ("web",), ("web", "a")):
        np.testing.assert_array_equal(lives.reached[path], bins.reached[path])
        np.testing.assert_array_equal(lives.ended[path], bins.ended[path])
    with pytest.raises(InvalidRequest):
        bins.add_ended(("web",), len(AGES_S), 1.0)


def test_a_table_tells_nothing_before_enough_vms_have_ended_and_more_as_a_vm_ages() -> None:
    counts = LifetimeCounts()
    counts.add(("web",), [300] * (LEAST_ENDED - 1))
    assert LifeTable(counts).left_s(("web",), 0) is None
    assert not LifeTable(counts).digest
    counts.add(("web",), [300] * 900 + [864_000] * 60)
    table = LifeTable(counts)
    young, old = table.left_s(("web",), 0), table.left_s(("web",), 7200)
    assert young is not None
    assert old is not None
    assert young < 400 < 400_000 < old
    assert table.left_s(("web", "never seen"), 0) == young
    counts.add(("web",), [3_000_000] * 2000, censored=True)
    assert LifeTable(counts).left_s(("web",), 0) is None  # most go on
    assert LifeTable(counts).digest != table.digest


def test_ends_that_differ_too_much_are_not_told() -> None:
    narrow, wide = LifetimeCounts(), LifetimeCounts()
    draws = np.random.default_rng(2).random(2000)
    narrow.add(("web",), (3600 * 4**draws).astype(int).tolist())
    wide.add(("web",), (60 * 43_200**draws).astype(int).tolist())
    assert LifeTable(narrow).left_s(("web",), 0) == pytest.approx(7200, rel=0.2)
    assert LifeTable(wide).left_s(("web",), 0) is None
    assert LifeTable(wide).digest


@given(
    st.lists(st.integers(0, 10**8), min_size=1, max_size=30),
    st.lists(st.integers(0, 10**8), max_size=30),
    st.integers(0, 10**9),
)
def test_chances_only_fall_and_nobody_ends_who_was_not_there(
    ended: list[int], cut: list[int], age_s: int
) -> None:
    counts = LifetimeCounts()
    counts.add(("any",), ended)
    counts.add(("any",), cut, censored=True)
    assert (counts.ended[("any",)] <= counts.reached[("any",)]).all()
    assert counts.ended[("any",)].sum() == len(ended)
    left = counts.remaining(("any",), age_s)
    assert (np.diff(left.survival) <= 0).all()
    assert (left.survival >= 0).all()
    assert left.mean_s >= 0
    assert len(AGES_S) == len(counts.hazard(("any",)))


def test_a_negative_age_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        LifetimeCounts().remaining(("web",), -1)
    with pytest.raises(InvalidRequest):
        LifetimeCounts().add(("web",), [-5])
