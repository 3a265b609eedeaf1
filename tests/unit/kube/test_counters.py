"""Counters: exact at every event, never back, and all modes make cores x time."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from roost.kube.metering.counters import Counter, Rates, Totals
from tests.turns import draws_in_turn

millionths = st.integers(0, 1_000_000)
rates_ = st.integers(0, 64_000_000).flatmap(
    lambda cores: st.builds(
        Rates, st.just(cores), st.integers(0, cores), cpu_waiting=millionths,
        memory_waiting=millionths,
    )
)  # fmt: skip
steps = st.lists(st.tuples(st.integers(0, 10**13), rates_), max_size=20)


@draws_in_turn()
@given(steps, st.integers(0, 10**13))
def test_totals_are_the_integrals_of_their_rates(
    history: list[tuple[int, Rates]], rest: int
) -> None:
    now, was, counter = 5, Rates(), Counter(5)
    cores = busy = cpu = memory = Fraction(0)
    for past, rates in [*history, (rest, Rates())]:
        now += past
        cores += Fraction(was.cores) * past
        busy += Fraction(was.busy) * past
        cpu += Fraction(was.cpu_waiting) * past
        memory += Fraction(was.memory_waiting) * past
        totals = counter.read(now)
        assert totals.idle + totals.user + totals.system == cores
        assert totals.user + totals.system == busy
        assert abs(totals.user - busy * 3 / 5) < 1
        assert (totals.cpu_waiting, totals.memory_waiting) == (cpu, memory)
        counter.change(now, rates)
        assert counter.read(now) == totals
        was = rates


@given(steps, st.lists(st.booleans(), min_size=20, max_size=20))
def test_no_total_ever_goes_back(history: list[tuple[int, Rates]], reads: list[bool]) -> None:
    now, counter = 5, Counter(5)
    last = Totals(0, 0, 0, 0, 0)
    for (past, rates), is_read in zip(history, reads, strict=False):
        now += past
        if is_read:
            found = counter.read(now)
            assert all(new >= old for new, old in zip(found, last, strict=True))
            last = found
        else:
            counter.change(now, rates)


@given(rates_, rates_, rates_, st.integers(1, 10**12))
def test_a_moment_before_the_last_one_counts_as_that_one(
    first: Rates, then: Rates, last: Rates, back: int
) -> None:
    now = 2 * 10**12
    counter, straight = Counter(10**12, first), Counter(10**12, first)
    for each in (counter, straight):
        each.change(now, then)
    assert counter.read(now - back) == counter.read(now)
    counter.change(now - back, last)
    straight.change(now, last)
    assert counter.read(now + 1) == straight.read(now + 1)
