"""Loads on VMs: what is drawn, and that what was laid on is taken off again without a trace."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.kube.script.loads import READERS, Bytes, Level, Load, LoadBook, Number, Share, Span

shares = st.floats(0.0, 1.0)
levels = st.builds(Level, shares, shares)
loads = st.builds(Load, st.none() | shares, st.none() | shares, st.booleans())


def read(kind, value):
    return READERS[kind](value)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Share, 1.2, "1.2 is no share from 0 to 1"),
        (Share, [0.5, 1.5], "is no share"),
        (Share, {"exponential": 0.5}, "one of uniform"),
        (Share, True, "True is no number"),
        (Number, "many", "'many' is no number"),
        (Number, -1, "-1 is no number"),
        (Number, {"poisson": 0}, "must be more than 0"),
        (Number, {"poisson": 1e9}, "too many"),
        (Number, {"poisson": 1, "uniform": [1, 2]}, "neither a value nor one of"),
        (Bytes, "4Gb", "write it as 4GiB"),
        (Bytes, 4, "write it as 4GiB"),
        (Span, [4, 3], "the lowest comes first"),
        (Span, [4], r"write it as \[LOWEST, HIGHEST\]"),
        (Span, "soon", "write it as 90s"),
    ],
)
def test_an_amount_that_makes_no_sense_is_refused(kind, value, words) -> None:
    with pytest.raises(ValueError, match=words):
        read(kind, value)


def test_amounts_are_fixed_or_drawn() -> None:
    chance = random.Random(1)
    assert read(Span, "2m").draw(chance) == 120.0
    assert read(Bytes, "4GiB").draw(chance) == 4 * 2**30
    for _ in range(100):
        assert 1.0 <= read(Number, [1, 4]).draw(chance) <= 4.0
    counts = [read(Number, {"poisson": 3}).draw(chance) for _ in range(3000)]
    assert 2.8 < sum(counts) / len(counts) < 3.2
    assert all(count == int(count) for count in counts)
    times = [read(Span, {"exponential": "10s"}).draw(chance) for _ in range(3000)]
    assert 9.3 < sum(times) / len(times) < 10.7


@given(levels, st.lists(loads, max_size=12), st.randoms(use_true_random=False))
def test_when_all_loads_are_off_a_vm_uses_what_it_used(own, laid, chance) -> None:
    book = LoadBook()
    book.add("a", own)
    numbers = [book.lay("a", load) for load in laid]
    chance.shuffle(numbers)
    for number in numbers:
        level = book.level("a")
        assert 0.0 <= level.cpu <= 1.0
        assert 0.0 <= level.memory <= 1.0
        assert book.take_off("a", number)
        assert not book.take_off("a", number)
    assert book.level("a") == own
    assert not book.busy


def test_the_latest_level_counts_and_what_is_on_top_adds_up() -> None:
    book = LoadBook()
    book.add("a", Level(0.2, 0.5))
    first = book.lay("a", Load(cpu=0.6))
    book.lay("a", Load(cpu=0.3, on_top=True))
    assert book.level("a") == Level(pytest.approx(0.9), 0.5)
    second = book.lay("a", Load(cpu=0.1, memory=0.9))
    assert book.level("a") == Level(pytest.approx(0.4), 0.9)
    book.take_off("a", second)
    assert book.level("a") == Level(pytest.approx(0.9), 0.5)
    book.take_off("a", first)
    assert book.level("a") == Level(pytest.approx(0.5), 0.5)
    book.lay("a", Load(cpu=0.9, on_top=True))
    assert book.level("a").cpu == 1.0


def test_a_vm_that_is_gone_takes_its_loads_along() -> None:
    book = LoadBook()
    book.add("a", Level(0.2, 0.5))
    number = book.lay("a", Load(cpu=0.6))
    book.remove("a")
    assert not book.take_off("a", number)
    book.add("a", Level(0.3, 0.4))
    assert book.level("a") == Level(0.3, 0.4)
