"""Who talks is learnt: a rate that comes up in days and fades in days, whatever the order."""

from math import isclose

from hypothesis import given
from hypothesis import strategies as st

from roost.topology.learning import HALF_LIFE_S, LEAST_MBIT, learn, pair_of, unlike

PAIR, OTHER = ("vm-a", "vm-b"), ("vm-a", "vm-c")
HOUR_S = 3600.0
pairs = st.sampled_from([(a, b) for a in "abcd" for b in "efgh"])
rates = st.dictionaries(pairs, st.floats(1.0, 1e5), max_size=16)
bits = st.dictionaries(pairs, st.integers(0, 10**15), max_size=16)
seconds = st.floats(0.0, 1e6)


def after(days: int, mbit: float, known: float = 0.0) -> float:
    """Return what is learnt of a pair that sends as much all the time, looked at each hour."""
    rate = {PAIR: known} if known else {}
    for _ in range(24 * days):
        rate = learn(rate, {PAIR: int(mbit * 1e6 * HOUR_S)}, HOUR_S)
    return rate.get(PAIR, 0.0)


def test_a_pair_comes_up_to_what_it_sends_in_days() -> None:
    found = [after(days, 100) for days in (1, 2, 7, 30)]
    assert [round(each, -1) for each in found] == [30, 50, 90, 100]
    assert abs(found[-1] - 100) < 1


def test_a_pair_that_is_silent_is_forgotten_in_days() -> None:
    assert isclose(learn({PAIR: 100.0}, {}, HALF_LIFE_S)[PAIR], 50.0)
    assert learn({PAIR: 100.0}, {}, 40 * 86_400) == {}
    assert learn({PAIR: LEAST_MBIT}, {}, 60) == {}


def test_what_happened_once_weighs_little() -> None:
    """Ten minutes at a gigabit a second are what two days at 2.4 Mbit/s would be."""
    assert 2.0 < learn({}, {PAIR: 600 * 10**9}, 0)[PAIR] < 3.0


def test_the_most_talkative_pairs_are_kept_and_ties_go_by_name() -> None:
    many = {(f"vm-{n:04}", "vm-z"): 5.0 for n in range(50)} | {PAIR: 9.0}
    found = learn(many, {}, 0, most=3)
    assert list(found) == [PAIR, ("vm-0000", "vm-z"), ("vm-0001", "vm-z")]


def test_a_clock_that_went_back_makes_nothing_larger() -> None:
    assert learn({PAIR: 100.0}, {}, -1e6) == {PAIR: 100.0}


@given(rates, seconds, seconds)
def test_it_does_not_matter_how_often_it_is_looked(known: dict, one: float, other: float) -> None:
    at_once = learn(known, {}, one + other)
    in_steps = learn(learn(known, {}, one), {}, other)
    for pair in at_once.keys() | in_steps.keys():
        here, there = at_once.get(pair, 0.0), in_steps.get(pair, 0.0)
        assert isclose(here, there, rel_tol=1e-9) or max(here, there) < 2 * LEAST_MBIT


@given(rates, bits, bits, seconds)
def test_it_does_not_matter_who_adds_first(known: dict, a: dict, b: dict, passed_s: float) -> None:
    """Two processes that heard of different hosts: one row, whoever writes first."""
    one = learn(learn(known, a, passed_s), b, 0.0)
    other = learn(learn(known, b, passed_s), a, 0.0)
    for pair in one.keys() | other.keys():
        here, there = one.get(pair, 0.0), other.get(pair, 0.0)
        assert isclose(here, there, rel_tol=1e-9) or abs(here - there) <= 1.01 * LEAST_MBIT


@given(rates, bits, seconds)
def test_the_same_readings_teach_the_same(known: dict, sent: dict, passed_s: float) -> None:
    backwards = dict(reversed(list(sent.items())))
    assert list(learn(known, sent, passed_s).items()) == list(
        learn(dict(reversed(list(known.items()))), backwards, passed_s).items()
    )


def test_a_pair_is_the_same_from_both_ends() -> None:
    assert pair_of(*PAIR) == pair_of(*reversed(PAIR)) == PAIR
    assert pair_of(*OTHER) != PAIR


def test_matrices_are_unlike_by_the_share_of_traffic_that_is_elsewhere() -> None:
    one, other = {("a", "b"): 9.0, ("a", "c"): 1.0}, {("a", "b"): 9.0, ("a", "d"): 1.0}
    assert unlike(one, one) == 0.0
    assert unlike({}, {}) == 0.0
    assert unlike(one, {}) == unlike({}, one) == 1.0
    assert isclose(unlike(one, other), 0.2)
    assert unlike(one, other) == unlike(other, one)
