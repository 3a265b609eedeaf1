"""Windows: the calmest time is found, within what is allowed, and given ones are judged."""

from itertools import pairwise

import numpy as np
import pytest

from roost.planner.windows import UNKNOWN_QUALITY, LoadAhead, Span, rated, troughs

STEP, FIRST = 300, 1_200_000
DAY = Span(FIRST, FIRST + 86_400)


def ahead_of(*by_hour: float) -> LoadAhead:
    """Return a day of loads, each for as long as the others."""
    return LoadAhead(FIRST, STEP, np.repeat(np.array(by_hour), 288 // len(by_hour)))


def hour(number: float) -> int:
    return FIRST + int(3600 * number)


def test_the_window_is_where_hosts_are_least_busy() -> None:
    ahead = ahead_of(*[0.6] * 8, *[0.1] * 3, *[0.7] * 13)
    (found,) = troughs(ahead, 1200, [DAY])
    assert (found.start_s, found.end_s) == (hour(8), hour(11))
    assert found.quality == 1.0
    assert found.reason == "its hosts are foreseen at 10%, and up to 70% otherwise"


def test_the_window_lies_in_the_times_that_are_allowed() -> None:
    ahead = ahead_of(*[0.6] * 8, *[0.1] * 3, *[0.7] * 13)
    (found,) = troughs(ahead, 1200, [Span(hour(2), hour(5))])
    assert hour(2) <= found.start_s < found.end_s <= hour(5)
    assert found.quality < 0.2
    assert troughs(ahead, 4 * 3600, [Span(hour(2), hour(5))]) == ()


def test_troughs_that_are_nearly_as_deep_come_too_and_never_overlap() -> None:
    ahead = ahead_of(0.8, 0.2, 0.8, 0.22, 0.8, 0.5)
    found = troughs(ahead, 3600, [DAY])
    assert [(each.start_s, each.end_s) for each in found] == [
        (hour(4), hour(8)),
        (hour(12), hour(16)),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_no_run_of_the_same_length_is_calmer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ahead = LoadAhead(FIRST, STEP, rng.random(288))
    needs = int(rng.integers(1, 40)) * STEP
    found = troughs(ahead, needs, [DAY])
    best = max(found, key=lambda each: each.quality)
    steps = needs // STEP
    means = [ahead.load[at : at + steps].mean() for at in range(289 - steps)]
    at, last = ((each - FIRST) // STEP for each in (best.start_s, best.end_s))
    inside = [ahead.load[n : n + steps].mean() for n in range(at, last - steps + 1)]
    assert min(inside) == pytest.approx(min(means))
    assert all(one.end_s <= other.start_s for one, other in pairwise(found))


def test_even_loads_make_every_time_as_good_as_any() -> None:
    found = troughs(ahead_of(0.4), 1200, [DAY])
    assert [(each.start_s, each.quality) for each in found] == [(FIRST, 1.0)]


def test_a_window_that_was_given_says_how_good_it_is() -> None:
    ahead = ahead_of(*[0.6] * 8, *[0.1] * 3, *[0.7] * 13)
    assert rated(Span(hour(9), hour(10)), ahead, "as asked").quality == 1.0
    busy = rated(Span(hour(15), hour(16)), ahead, "as asked")
    assert (busy.quality, busy.reason) == (
        0.0,
        "as asked; its hosts are at 70%, 59% at other times",
    )
    far = rated(Span(hour(90), hour(91)), ahead, "as asked")
    assert far.quality == UNKNOWN_QUALITY
    assert "nothing is foreseen" in far.reason


def test_nothing_foreseen_is_no_trough() -> None:
    assert troughs(LoadAhead(FIRST, STEP, np.zeros(0)), 600, [DAY]) == ()
    assert troughs(LoadAhead(FIRST, STEP, np.full(288, np.inf)), 600, [DAY]) == ()
