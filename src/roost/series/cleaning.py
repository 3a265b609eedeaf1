"""Readings cleaned before they are kept, and counts of what was wrong with them. Pure.

A value that is negative or no number goes, and so does a reading of a moment that cannot be right.
How many that were is noted beside a reading that stays (`NOTES`), so that the count is as durable
as the reading, is read like one, and goes when it is too old. What has no reading to stand beside
waits for the next one of its subject; a process that is killed forgets it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from roost.model.series import (
    DUPLICATES,
    FIGURES,
    JUMPS,
    NEGATIVE,
    NOT_FINITE,
    OUT_OF_ORDER,
    Reading,
    Subject,
)


class Cleaned(NamedTuple):
    """Readings that can be kept, the newest moment of each subject, and notes that wait."""

    kept: list[Reading]
    newest: dict[Subject, int]
    waiting: dict[Subject, Counter[str]]


class Cleaner:
    """Cleans the readings of one process; knows the newest one that it has kept of a subject."""

    def __init__(self) -> None:
        self._newest: dict[Subject, int] = {}
        self._waiting: dict[Subject, Counter[str]] = {}

    def clean(
        self, readings: Sequence[Reading], oldest: int, latest: int, *, imported: bool = False
    ) -> Cleaned:
        """Return what can be kept; nothing is remembered of it until `settle`.

        Imports are of the past, in an order of their own: they are compared with themselves alone,
        so that the same import again gives the same notes at the same places.
        """
        before = {} if imported else self._newest
        kept: list[Reading] = []
        newest: dict[Subject, int] = {}
        places: dict[Subject, int] = {}
        wrong: dict[Subject, Counter[str]] = {}
        for subject, at_ms, given in readings:
            figures = {
                name: value
                for name, value in given.items()
                if 0.0 <= value < inf and name in FIGURES
            }
            notes = _wrong_values(given) if len(figures) < len(given) else None
            if not oldest <= at_ms <= latest:
                notes = Counter({JUMPS: 1})
            elif figures:
                last = newest.get(subject)
                if last is None:
                    last = before.get(subject, -1)
                if at_ms > last:
                    newest[subject], places[subject] = at_ms, len(kept)
                    if notes:  # beside itself: the same reading again changes nothing
                        figures.update(notes)
                        notes = None
                else:
                    notes = (notes or Counter()) + Counter(
                        {DUPLICATES if at_ms == last else OUT_OF_ORDER: 1}
                    )
                kept.append(Reading(subject, at_ms, figures))
            if notes:
                wrong[subject] = wrong.get(subject, Counter()) + notes
        waiting = {} if imported else self._waiting
        for subject in sorted({*wrong, *(waiting.keys() & places.keys())}):
            notes = wrong.get(subject, Counter()) + waiting.get(subject, Counter())
            place = places.get(subject)
            if place is not None:
                reading = kept[place]
                notes += Counter(
                    {name: int(value) for name, value in reading.figures.items() if name in notes}
                )
                kept[place] = reading._replace(figures={**reading.figures, **notes})
                notes = Counter()
            wrong[subject] = notes
        return Cleaned(kept, newest, wrong) if not imported else Cleaned(kept, {}, {})

    def settle(self, cleaned: Cleaned) -> None:
        """Remember what was kept, once it is durable."""
        self._newest.update(cleaned.newest)
        for subject, notes in cleaned.waiting.items():
            if notes:
                self._waiting[subject] = notes
            else:
                self._waiting.pop(subject, None)


def _wrong_values(given: Mapping[str, float]) -> Counter[str]:
    """Count the values that cannot be; figures of names that are not kept do not count."""
    return Counter(
        NEGATIVE if -inf < value < 0.0 else NOT_FINITE
        for name, value in given.items()
        if name in FIGURES and not 0.0 <= value < inf
    )
