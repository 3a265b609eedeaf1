"""Series brought to a regular grid: the first step of the analysis, which counts mistakes.

Samples come as they were sent: late, twice, out of order, with holes, from clocks that jumped.
After `regular` a series is a start, a step and one value per step, NaN where nothing is known. What
was repaired or dropped is counted in `Cleaning`; no input is a crash, nothing is repaired unsaid.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from roost.base.errors import InvalidRequest

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The most points that a grid may have: a clock that jumps by years must not ask for memory.
MOST_POINTS = 1_000_000
#: Times beyond this are a broken clock (the year 2262), and would overflow differences.
LATEST_S = 2**33
#: Series whose gaps are bridged at once: what that needs beside them stays in the caches.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Counts of what was found in a series and what became of it.

    `gaps` are steps of the grid without a value; `duplicates` are further samples of the same
    second, of which the last one sent counts; `merged` shared a step with another second and were
    averaged; `resets` are counters that began anew; `jumps` are samples that the clock put further
    away than the grid may reach.
    """

    samples: int = 0
    not_finite: int = 0
    negative: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    merged: int = 0
    resets: int = 0
    jumps: int = 0
    gaps: int = 0

    @property
    def dropped(self) -> int:
        """Count the samples that are not in the grid in any form."""
        return self.not_finite + self.negative + self.duplicates + self.jumps

    def __add__(self, other: "Cleaning") -> "Cleaning":
        """Add up the counts of two series."""
        names = [field.name for field in fields(self)]
        return Cleaning(*(getattr(self, name) + getattr(other, name) for name in names))


@dataclass(frozen=True, slots=True)
class Series:
    """One value per step from `start_s` on, float64, NaN where nothing is known."""

    start_s: int
    step_s: int
    values: Floats
    cleaning: Cleaning

    @property
    def times_s(self) -> Ints:
        """Return the time of each value."""
        return self.start_s + self.step_s * np.arange(len(self.values), dtype=np.int64)

    @property
    def is_constant(self) -> bool:
        """Tell whether the known values are all the same, or there is none."""
        known = self.values[np.isfinite(self.values)]
        return len(known) == 0 or bool(known.min() == known.max())


def regular(
    times_s: npt.ArrayLike,
    values: npt.ArrayLike,
    step_s: int,
    *,
    counter: bool = False,
    allow_negative: bool = False,
    most_points: int = MOST_POINTS,
) -> Series:
    """Bring samples of any order and quality to a grid of `step_s`, and count what was wrong.

    A `counter` grows and becomes a rate per second; where it falls it began anew, and the rise
    across that moment is unknown. A negative value is dropped unless `allow_negative`. When the
    samples span more than `most_points` steps the longest run of the latest ones is kept.
    """
    if step_s < 1:
        raise InvalidRequest(f"step_s is {step_s}, it must be at least 1", step_s=step_s)
    if most_points < 1:
        raise InvalidRequest(
            f"most_points is {most_points}, it must be at least 1", most_points=most_points
        )
    at = np.atleast_1d(np.asarray(times_s))
    if at.size and at.dtype.kind not in "iu":
        raise InvalidRequest(f"times are {at.dtype}, they must be integers", dtype=str(at.dtype))
    at = at.astype(np.int64)
    value = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if at.shape != value.shape or at.ndim != 1:
        raise InvalidRequest(
            f"{at.shape} times and {value.shape} values are not one series",
            times=list(at.shape),
            values=list(value.shape),
        )
    count = {"samples": len(at)}
    at, value = _usable(at, value, count, allow_negative)
    at, value = _in_order(at, value, count)
    at, value = _without_jumps(at, value, step_s * most_points, count)
    if counter:
        at, value = _rates(at, value, count)
    if not len(at):
        return Series(0, step_s, np.empty(0), Cleaning(**count))
    slot = at // step_s
    first = int(slot[0])
    slot = slot - first
    length = int(slot[-1]) + 1
    total = np.bincount(slot, weights=value, minlength=length)
    held = np.bincount(slot, minlength=length)
    # Values near the largest float add up to infinity; as unknown they are at least not wrong.
    mean = np.divide(total, held, out=np.full(length, np.nan), where=(held > 0))
    mean[~np.isfinite(mean)] = np.nan
    count["merged"] = int(np.sum(held[held > 1] - 1))
    count["gaps"] = int(np.count_nonzero(np.isnan(mean)))
    return Series(first * step_s, step_s, mean, Cleaning(**count))


def _usable(
    at: Ints, value: Floats, count: dict[str, int], allow_negative: bool
) -> tuple[Ints, Floats]:
    finite = np.isfinite(value)
    negative = np.zeros(len(value), np.bool_) if allow_negative else finite & (value < 0)
    sane = (at >= -LATEST_S) & (at <= LATEST_S)
    count["not_finite"] = int(np.count_nonzero(~finite))
    count["negative"] = int(np.count_nonzero(negative))
    keep = finite & ~negative
    count["jumps"] = int(np.count_nonzero(keep & ~sane))
    keep &= sane
    return at[keep], value[keep]


def _in_order(at: Ints, value: Floats, count: dict[str, int]) -> tuple[Ints, Floats]:
    if len(at):
        count["out_of_order"] = int(np.count_nonzero(at < np.maximum.accumulate(at)))
    order = np.argsort(at, kind="stable")
    at, value = at[order], value[order]
    last = np.append(at[1:] != at[:-1], True)[: len(at)]
    count["duplicates"] = int(np.count_nonzero(~last))
    return at[last], value[last]


def _without_jumps(
    at: Ints, value: Floats, span_s: int, count: dict[str, int]
) -> tuple[Ints, Floats]:
    """Keep the window of the span with the most samples, the latest of equal ones."""
    if not len(at) or at[-1] - at[0] < span_s:
        return at, value
    ends = np.searchsorted(at, at + span_s, side="left")
    held = ends - np.arange(len(at))
    best = len(held) - 1 - int(np.argmax(held[::-1]))
    count["jumps"] += len(at) - int(held[best])
    return at[best : ends[best]], value[best : ends[best]]


def _rates(at: Ints, value: Floats, count: dict[str, int]) -> tuple[Ints, Floats]:
    with np.errstate(over="ignore"):
        rise = np.diff(value)
    fell = rise < 0
    count["resets"] = int(np.count_nonzero(fell))
    rate = rise / np.maximum(np.diff(at), 1)
    keep = ~fell & np.isfinite(rate)
    return at[1:][keep], rate[keep]


def filled(values: Floats) -> Floats:
    """Return a batch whose gaps are bridged by straight lines; a series of gaps is zero."""
    known = np.isfinite(values)
    if known.all():
        return values
    out: Floats = np.ascontiguousarray(np.where(known, values, 0.0))
    for begin in range(0, len(out), _AT_ONCE):
        _bridge(out[begin : begin + _AT_ONCE], known[begin : begin + _AT_ONCE])
    return out


def _bridge(out: Floats, known: npt.NDArray[np.bool_]) -> None:
    """Write into the gaps of some series, which are whole rows of one array."""
    flat, points = out.reshape(-1), out.shape[1]
    there, gaps = np.flatnonzero(known), np.flatnonzero(~known)
    if not len(there) or not len(gaps):
        return
    # Of each gap the known values before and after it; at the ends of a series there is only one.
    after = gaps - np.arange(len(gaps))  # so many are known before each
    left, right = there[np.maximum(after - 1, 0)], there[np.minimum(after, len(there) - 1)]
    row = gaps // points
    has_left = (left // points == row) & (left < gaps)
    has_right = (right // points == row) & (right > gaps)
    left, right = np.where(has_left, left, right), np.where(has_right, right, left)
    usable = has_left | has_right
    first, last = flat[left[usable]], flat[right[usable]]
    length = np.maximum(right - left, 1)[usable]
    flat[gaps[usable]] = (last - first) / length * (gaps - left)[usable] + first
