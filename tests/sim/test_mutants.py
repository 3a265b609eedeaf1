"""Planted mistakes are found by a campaign of a few worlds, and it is printed in how many.

The worlds are those of `roost sim`, drawn from seeds. Each mistake names a seed whose world breaks
a law with it; if worlds are drawn differently one day, the search goes on from there. Without a
mistake the same worlds hold every law, which campaigns see to. `tests.sim.finding` prints the table
of all mistakes over many worlds.
"""

import pytest

from tests.sim.finding import Found, find, table
from tests.sim.mutants import NAMED, names
from tests.sim.written import WRITTEN

#: Worlds that are tried before a mistake counts as missed.
MOST_WORLDS = 40
#: A mistake, and a seed that finds it.
FOUND_AT = {
    "forgotten re-check": 0,
    "absolute write": 1,
    "double release": 0,
    "off by one": 2,
    "ack before commit": 65,
    "left in the sums": 0,
    "stale generation": 54,
    "reordered report": 16,
    "lost tombstone": 2,
    "early word": 19,
    "lease counted from receipt": 24,
    "renewal before the ledger": 121,
    "missing fence": 1,
    "target not asked": 36,
    "source's word": 1,
    "no waiting for the target": 10,
    "unasked rule": 6,
    "grown past a rule": 29,
    "deaf engine": 3,
    "quiet switch": 219,
    "impatient rule": 40,
    "given away": 9,
    "short memory": 9,
    "spent budget": 12,
    "forgotten hold": 5,
    "hold for nobody": 5,
    "left its policy": 7,
    "left in the base": 0,
    "unreadable row": 0,
    "only in the log": 0,
    "proof before the word": 10,
    "begun before it was claimed": 1,
    "all waves at once": 38,
    "left waiting": 36,
    "held for ever": 19,
}
#: Mistakes that need so much at once that drawn worlds find them seldom: none of those from 6 to 57
#: finds the first as worlds are drawn now, none has found the second yet, none of those from 3
#: to 52 finds the third, and none of the ten with cards below 58 the last.
WRITTEN_ONLY = {
    "no waiting for the refuser": 0,
    "old list": 77,
    "drawn twice": 0,
    "cards given away": 0,
}


def test_every_mistake_is_looked_for() -> None:
    assert {*FOUND_AT, *WRITTEN_ONLY} == set(names())
    assert set(NAMED) <= set(FOUND_AT)


@pytest.mark.turns(2)
@pytest.mark.parametrize("mistake", FOUND_AT)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    first = FOUND_AT[mistake]
    found = find(mistake, range(first, first + MOST_WORLDS), enough=1)
    print(found)
    assert found.first is not None


@pytest.mark.parametrize("mistake", WRITTEN)
def test_a_history_that_was_written_for_a_mistake_finds_it(mistake: str) -> None:
    first = WRITTEN_ONLY.get(mistake, 0)
    found = find(mistake, range(first, first + MOST_WORLDS), enough=1, written=True)
    print(found)
    assert found.first is not None


def test_the_table_says_what_was_found_and_what_was_not() -> None:
    found = [Found("forgotten", 12, 7, 3, "h1 promises 5 of 4"), Found("hidden", 12, 0)]
    lines = list(table(found))
    assert "7 of 12" in lines[1]
    assert lines[1].endswith("h1 promises 5 of 4")
    assert "0 of 12" in lines[2]
    assert str(found[0]).startswith("forgotten: found in 7 of 12 worlds, first at seed 3")
    assert str(found[1]) == "hidden: found in none of 12 worlds"
