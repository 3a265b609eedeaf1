"""Times of day by UTC in a label, such as `08:00-18:00` or `22:00-06:00`, several with commas."""

import re
from collections.abc import Sequence

import numpy as np

from roost.fleet.layout import BoolArray
from roost.planner.windows import Span

_PERIOD = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")
#: Minutes of a day.
DAY = 1440


def read_daytimes(text: str) -> list[tuple[int, int, str]] | None:
    """Return first minute, last minute and words of each period; None when it cannot be read.

    One whose last minute is not after its first goes on past midnight.
    """
    found = []
    for part in text.split(","):
        read = _PERIOD.fullmatch(part.strip())
        if read is None:
            return None
        first, last = (60 * int(read[i]) + int(read[i + 1]) for i in (1, 3))
        found.append((first, last, part.strip().replace("-", " to ")))
    return found


def minutes_in(periods: Sequence[tuple[int, int, str]]) -> BoolArray:
    """Return which minutes of a day lie in some period."""
    found = np.zeros(DAY, np.bool_)
    for first, last, _ in periods:
        if last > first:
            found[first:last] = True
        else:
            found[first:] = found[:last] = True
    return found


def on_days(free: BoolArray, first_s: int, last_s: int) -> list[Span]:
    """Return when these minutes of every day come from a moment up to another, joined, in order."""
    midnight = first_s - first_s % 86_400
    days = max(0, -((midnight - last_s) // 86_400))
    edges = np.flatnonzero(np.diff(np.tile(free, days), prepend=False, append=False))
    found = (
        Span(max(first_s, midnight + 60 * first), min(last_s, midnight + 60 * last))
        for first, last in edges.reshape(-1, 2).tolist()
    )
    return [span for span in found if span.start_s < span.end_s]
