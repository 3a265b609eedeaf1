"""What is left of a life follows from counts: Kaplan and Meier by hand on small numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.analysis.lifetime import AGES_S, LifetimeCounts
from roost.base.errors import InvalidRequest


def test_the_median_of_many_short_lives_is_found() -> None:
    counts = LifetimeCounts()
    counts.add("web", np.random.default_rng(1).exponential(3600, 20_000).astype(int).tolist())
    left = counts.remaining("web", 0)
    assert left.quantile_s(0.5) == pytest.approx(3600 * np.log(2), rel=0.1)
    assert left.survives(3600) == pytest.approx(np.exp(-1), abs=0.03)
    assert left.seen == 20_000


def test_who_has_lived_long_will_live_longer_where_lives_are_of_two_kinds() -> None:
    counts = LifetimeCounts()
    counts.add("mixed", [300] * 900 + [864_000] * 100)
    assert counts.remaining("mixed", 0).quantile_s(0.5) < 400
    assert counts.remaining("mixed", 7200).quantile_s(0.5) > 400_000


def test_who_lives_on_counts_as_far_as_seen() -> None:
    ended, cut = LifetimeCounts(), LifetimeCounts()
    ended.add("job", [1000] * 50)
    cut.add("job", [1000] * 50)
    cut.add("job", [100_000] * 50, censored=True)
    assert ended.remaining("job", 0).survives(5_000) < 0.1
    assert cut.remaining("job", 0).survives(5_000) == pytest.approx(0.5, abs=0.05)


def test_a_class_never_seen_is_told_by_the_fleet() -> None:
    counts = LifetimeCounts()
    counts.add("web", [600] * 100)
    assert counts.remaining("new", 0).quantile_s(0.5) == pytest.approx(600, rel=0.5)
    assert LifetimeCounts().remaining("new", 0).quantile_s(0.5) == float("inf")


def test_counts_of_two_histories_add_up() -> None:
    one, two, both = LifetimeCounts(), LifetimeCounts(), LifetimeCounts()
    one.add("web", [60, 600])
    two.add("web", [6000])
    both.add("web", [60, 600, 6000])
    np.testing.assert_array_equal(one.merged(two).reached["web"], both.reached["web"])
    np.testing.assert_array_equal(one.merged(two).ended["web"], both.ended["web"])


@given(
    st.lists(st.integers(0, 10**8), min_size=1, max_size=30),
    st.lists(st.integers(0, 10**8), max_size=30),
    st.integers(0, 10**9),
)
def test_chances_only_fall_and_nobody_ends_who_was_not_there(
    ended: list[int], cut: list[int], age_s: int
) -> None:
    counts = LifetimeCounts()
    counts.add("any", ended)
    counts.add("any", cut, censored=True)
    assert (counts.ended["any"] <= counts.reached["any"]).all()
    assert counts.ended["any"].sum() == len(ended)
    left = counts.remaining("any", age_s)
    assert (np.diff(left.survival) <= 0).all()
    assert (left.survival >= 0).all()
    assert left.mean_s >= 0
    assert len(AGES_S) == len(counts.hazard("any"))


def test_a_negative_age_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        LifetimeCounts().remaining("web", -1)
    with pytest.raises(InvalidRequest):
        LifetimeCounts().add("web", [-5])
