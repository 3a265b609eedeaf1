"""Ids sort by their making, and many of one moment are those that one by one would be."""

from itertools import pairwise
from random import Random

import pytest

from roost.base.ids import _ALPHABET, IdSource


class Drawn(Random):
    """A generator that draws one number again and again."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.number = number

    def getrandbits(self, k: int) -> int:
        return self.number


def number_of(id_: str) -> int:
    """Return what the random digits of an id say."""
    number = 0
    for digit in id_[-11:]:
        number = number * 32 + _ALPHABET.index(digit)
    return number


@pytest.mark.parametrize("first", [0, 1, 1023, 1024, 2**30 - 3, 2**54 - 1])
@pytest.mark.parametrize("count", [0, 1, 2, 1023, 1025, 2500])
def test_many_ids_of_a_moment_count_on_from_one_draw(first: int, count: int) -> None:
    ids = IdSource(lambda: 1_794_916_800_000, Drawn(first)).many("vm", count)
    assert [number_of(each) for each in ids] == list(range(first, first + count))
    assert len({each[:-11] for each in ids}) <= 1
    assert all(a < b for a, b in pairwise(ids))


def test_an_id_that_is_made_later_sorts_behind() -> None:
    moments = iter([1_000, 1_001, 2_000_000_000_000])
    source = IdSource(lambda: next(moments))
    first, second, third = (source.new("vm") for _ in range(3))
    assert first < second < third
    assert len(first) == len(third) == len("vm-") + 20
