"""Exponential back-off: the waits, the bounds of chance, and attempts without end."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.backoff import BackOff

back_offs = st.builds(
    lambda first, longer, factor, jitter: BackOff(first, first * longer, factor, jitter),
    st.floats(0.001, 60.0),
    st.floats(1.0, 10_000.0),
    st.floats(1.01, 10.0),
    st.floats(0.0, 1.0),
)
attempts = st.one_of(st.integers(0, 80), st.integers(1_000, 2_000), st.integers(10**300, 10**400))


def test_each_wait_is_twice_the_last_up_to_the_most() -> None:
    waits = [BackOff(0.5, 15.0).wait_s(each) for each in range(8)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


def test_the_factor_may_be_another() -> None:
    waits = [BackOff(1.0, 3.0, factor=1.5).wait_s(each) for each in range(4)]
    assert waits == [1.0, 1.5, 2.25, 3.0]


@given(back_offs, attempts)
def test_waits_grow_to_the_most_and_stay_there(back_off: BackOff, attempt: int) -> None:
    wait, later = back_off.wait_s(attempt), back_off.wait_s(attempt + 1)
    assert back_off.first_s <= wait <= later <= back_off.most_s
    assert wait < later or wait == back_off.most_s


@given(back_offs, attempts, st.integers())
def test_chance_takes_no_more_than_the_jitter(back_off: BackOff, attempt: int, seed: int) -> None:
    wait, jittered = back_off.wait_s(attempt), back_off.jittered_s(attempt, Random(seed))
    assert wait * (1.0 - back_off.jitter) <= jittered <= wait * (1.0 + 1e-12)


def test_chance_spreads_the_waits_and_repeats_with_its_seed() -> None:
    back_off, random = BackOff(8.0, 60.0), Random(1)
    waits = [back_off.jittered_s(0, random) for _ in range(1_000)]
    assert min(waits) == pytest.approx(4.0, rel=0.01)
    assert max(waits) == pytest.approx(8.0, rel=0.01)
    assert back_off.jittered_s(0, Random(1)) == waits[0]
