"""Windows: the times in which a plan may run, and how good each one is.

A window's quality is 1 where the hosts that a plan touches are foreseen to be as little busy as
they ever are ahead, and 0 where they are as busy as they ever are. It is judged by the upper bound
of the forecast: a trough of which nobody is sure is no trough. Pure; times are wall-clock seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roost.fleet.layout import BoolArray
from roost.planner.board import Floats

#: Quality of a window of which nothing is foreseen.
UNKNOWN_QUALITY = 0.5
#: Troughs that a plan is given, and by how much the others may be worse than the best.
MOST_TROUGHS, NEARLY = 3, 0.1
#: How far a trough reaches: while the load is not higher above the lowest than this share of all.
_DEPTH = 0.15
#: Loads that differ by less, as a share of the mean, have no trough.
_FLAT = 0.05


class Span(NamedTuple):
    """A time from a moment up to another one."""

    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which a plan may run: how good it is, 0 to 1, and why."""

    start_s: int
    end_s: int
    quality: float
    reason: str

    @property
    def length_s(self) -> int:
        """Return how long it is."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class LoadAhead:
    """The foreseen load of some hosts as a share of what they have, by step from a moment on."""

    first_s: int
    step_s: int
    load: Floats

    @property
    def known(self) -> bool:
        """Say whether anything is foreseen."""
        return bool(len(self.load)) and bool(np.isfinite(self.load).all())

    @property
    def end_s(self) -> int:
        """Return the end of what is foreseen."""
        return self.first_s + self.step_s * len(self.load)

    def mean(self, span: Span) -> float | None:
        """Return the mean load of a time; None unless all of it is foreseen."""
        if not self.known or span.start_s < self.first_s or span.end_s > self.end_s:
            return None
        first = (span.start_s - self.first_s) // self.step_s
        last = -(-(span.end_s - self.first_s) // self.step_s)
        return float(self.load[first : max(last, first + 1)].mean())

    def quality(self, load: float) -> float:
        """Return where a load lies between the highest foreseen (0) and the lowest (1)."""
        low, high = float(self.load.min()), float(self.load.max())
        if high - low < _FLAT * max(high, 1e-9):
            return 1.0
        return round(min(1.0, max(0.0, (high - load) / (high - low))), 3)


def rated(span: Span, ahead: LoadAhead, why: str) -> Window:
    """Return a window that was given, with what is foreseen of its hosts in it."""
    begins = max(span.start_s, ahead.first_s)
    load = ahead.mean(Span(begins, span.end_s)) if begins < span.end_s else None
    if load is None:
        return Window(*span, UNKNOWN_QUALITY, f"{why}; nothing is foreseen of its hosts then")
    mean = float(ahead.load.mean())
    told = f"its hosts are at {100 * load:.0f}%, {100 * mean:.0f}% at other times"
    return Window(*span, ahead.quality(load), f"{why}; {told}")


def troughs(ahead: LoadAhead, needs_s: float, within: Sequence[Span]) -> tuple[Window, ...]:
    """Return the times at which hosts are least busy, each long enough, in their order.

    The best one, and those that are nearly as good, which a plan that did not come to its end may
    go on in. None where nothing is foreseen.
    """
    if not ahead.known:
        return ()
    steps = max(1, int(np.ceil(needs_s / ahead.step_s)))
    taken = np.zeros(len(ahead.load), np.bool_)
    free = _inside(ahead, within)
    found: list[Window] = []
    while len(found) < MOST_TROUGHS:
        window = _deepest(ahead, steps, free & ~taken)
        if window is None or (found and window.quality < found[0].quality - NEARLY):
            break
        found.append(window)
        at = slice(*((each - ahead.first_s) // ahead.step_s for each in _span(window)))
        taken[at] = True
        # A second one right beside the first would be the same trough.
        taken[max(0, at.start - steps) : at.stop + steps] = True
    return tuple(sorted(found, key=lambda each: each.start_s))


def _span(window: Window) -> Span:
    return Span(window.start_s, window.end_s)


def _inside(ahead: LoadAhead, within: Sequence[Span]) -> BoolArray:
    """Return the steps that lie in some of the times whole."""
    starts = ahead.first_s + ahead.step_s * np.arange(len(ahead.load))
    inside = np.zeros(len(starts), np.bool_)
    for span in within:
        inside |= (starts >= span.start_s) & (starts + ahead.step_s <= span.end_s)
    return inside


def _deepest(ahead: LoadAhead, steps: int, free: BoolArray) -> Window | None:
    """Return the lowest run of so many free steps, and what of its trough lies around it."""
    if steps > len(free):
        return None
    runs = np.lib.stride_tricks.sliding_window_view(free, steps).all(axis=1)
    if not runs.any():
        return None
    means = np.lib.stride_tricks.sliding_window_view(ahead.load, steps).mean(axis=1)
    first = int(np.argmin(np.where(runs, means, np.inf)))
    last = first + steps
    low, high = float(ahead.load.min()), float(ahead.load.max())
    deep = free & (ahead.load <= max(means[first], low + _DEPTH * (high - low)))
    while first > 0 and deep[first - 1]:
        first -= 1
    while last < len(deep) and deep[last]:
        last += 1
    load = float(ahead.load[first:last].mean())
    flat = high - low < _FLAT * max(high, 1e-9)
    why = (
        f"its hosts are at about {100 * load:.0f}% all the time"
        if flat
        else f"its hosts are foreseen at {100 * load:.0f}%, and up to {100 * high:.0f}% otherwise"
    )
    start = ahead.first_s + first * ahead.step_s
    end = ahead.first_s + last * ahead.step_s
    return Window(start, end, ahead.quality(load), why)
