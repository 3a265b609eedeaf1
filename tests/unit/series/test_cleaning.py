"""What is cleaned of readings before they are kept, and what is counted of it."""

from collections.abc import Callable
from math import inf, nan

import pytest

from roost.model.series import (
    DUPLICATES,
    JUMPS,
    NEGATIVE,
    NOT_FINITE,
    OUT_OF_ORDER,
    Reading,
    Subject,
)
from roost.series import cleaning
from roost.series.cleaning import Cleaner

WEB, OTHER = Subject("vm", "web"), Subject("vm", "other")
LATEST = 10_000


def reading(at_ms: int, cpu: float = 1.0, subject: Subject = WEB, **more: float) -> Reading:
    return Reading(subject, at_ms, {"cpu_milli": cpu, **more})


def noted(cleaner: Cleaner, *readings: Reading, imported: bool = False) -> list[dict[str, float]]:
    """Clean and settle readings; return the figures of those that are kept."""
    cleaned = cleaner.clean(readings, 0, LATEST, imported=imported)
    cleaner.settle(cleaned)
    return [dict(each.figures) for each in cleaned.kept]


def test_values_that_cannot_be_are_noted_beside_what_is_left_of_their_reading() -> None:
    wrong = reading(1, disk_bytes=-3.0, rss_bytes=inf, memory_bytes=nan, of_my_own=-1.0)
    right = {"cpu_milli": 1.0, NEGATIVE: 1, NOT_FINITE: 2}
    assert noted(Cleaner(), wrong) == [right]


def test_a_reading_of_which_nothing_is_left_is_noted_beside_the_next() -> None:
    cleaner = Cleaner()
    assert noted(cleaner, reading(1, nan), reading(2, -1.0), reading(LATEST + 1)) == []
    assert noted(cleaner, reading(3, 5.0, OTHER)) == [{"cpu_milli": 5.0}]
    assert noted(cleaner, reading(4)) == [{"cpu_milli": 1.0, NOT_FINITE: 1, NEGATIVE: 1, JUMPS: 1}]
    assert noted(cleaner, reading(5)) == [{"cpu_milli": 1.0}]


def what_could_not_be_written_is_not_told_twice() -> None:
    cleaner = Cleaner()
    some = [reading(1), reading(2), reading(2)]
    first = cleaner.clean(some, 0, LATEST)  # the store was away: nothing is settled
    assert cleaner.clean(some, 0, LATEST) == first
    assert [each.figures.get(DUPLICATES) for each in first.kept] == [None, 1, None]


def test_what_could_not_be_written_is_not_told_twice() -> None:
    what_could_not_be_written_is_not_told_twice()


def test_a_build_that_settles_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., cleaning.Cleaned] = Cleaner.clean

    def at_once(self: Cleaner, readings: list[Reading], oldest: int, latest: int) -> object:
        cleaned = right(self, readings, oldest, latest)
        self.settle(cleaned)
        return cleaned

    monkeypatch.setattr(Cleaner, "clean", at_once)
    with pytest.raises(AssertionError):
        what_could_not_be_written_is_not_told_twice()


def test_late_readings_are_kept_and_noted_with_the_next_newer_one() -> None:
    cleaner = Cleaner()
    assert noted(cleaner, reading(5), reading(3)) == [
        {"cpu_milli": 1.0, OUT_OF_ORDER: 1},
        {"cpu_milli": 1.0},
    ]
    assert noted(cleaner, reading(4), reading(5)) == [{"cpu_milli": 1.0}, {"cpu_milli": 1.0}]
    assert noted(cleaner, reading(6)) == [{"cpu_milli": 1.0, OUT_OF_ORDER: 1, DUPLICATES: 1}]


def test_an_import_of_the_past_is_not_late_and_the_same_again_says_the_same() -> None:
    cleaner = Cleaner()
    noted(cleaner, reading(9_000))
    past = [reading(1), reading(2, disk_bytes=-1.0), reading(2)]
    right = [{"cpu_milli": 1.0}, {"cpu_milli": 1.0, NEGATIVE: 1, DUPLICATES: 1}, {"cpu_milli": 1.0}]
    for _ in range(2):
        assert noted(cleaner, *past, imported=True) == right
    assert noted(cleaner, reading(9_001)) == [{"cpu_milli": 1.0}]
