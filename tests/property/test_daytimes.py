"""Times of day that several hosts have in common, against their spans compared pair by pair."""

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from roost.control.plans.daytimes import DAY, minutes_in, on_days
from roost.planner.windows import Span
from tests.property.laws import examples

MINUTE = st.integers(0, DAY - 1)
PERIODS = st.lists(st.tuples(MINUTE, MINUTE, st.just("")), min_size=1, max_size=5)


def common(
    hosts: Sequence[Sequence[tuple[int, int, str]]], first_s: int, last_s: int
) -> list[Span]:
    """Return the twin's answer: every span of a host with every one of those before."""
    within = [Span(first_s, last_s)] if first_s < last_s else []
    for periods in hosts:
        own = [
            Span(day + 60 * first, day + 60 * (last if last > first else last + DAY))
            for day in range(first_s - first_s % 86_400 - 86_400, last_s, 86_400)
            for first, last, _ in periods
        ]
        shared = sorted(
            Span(max(one.start_s, other.start_s), min(one.end_s, other.end_s))
            for one in within
            for other in own
            if max(one.start_s, other.start_s) < min(one.end_s, other.end_s)
        )
        within = []
        for span in shared:
            if within and span.start_s <= within[-1].end_s:
                within[-1] = Span(within[-1].start_s, max(within[-1].end_s, span.end_s))
            else:
                within.append(span)
    return within


@examples(200)
@given(
    hosts=st.lists(PERIODS, max_size=4),
    first_s=st.integers(0, 2_000_000_000),
    length_s=st.integers(0, 8 * 86_400),
)
@example(hosts=[[(600, 600, "")]], first_s=86_400 * 5 + 7, length_s=86_400)  # all day, from 10:00
@example(hosts=[[(1320, 360, "")]], first_s=86_400 * 5 + 7, length_s=3)  # past midnight
@example(hosts=[[(0, 60, ""), (60, 90, "")]], first_s=0, length_s=86_400)  # side by side
def test_common_times_are_those_of_the_twin(
    hosts: list[list[tuple[int, int, str]]], first_s: int, length_s: int
) -> None:
    free = np.ones(DAY, np.bool_)
    for periods in hosts:
        free &= minutes_in(periods)
    last_s = first_s + length_s
    assert on_days(free, first_s, last_s) == common(hosts, first_s, last_s)
