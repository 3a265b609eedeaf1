"""Workload patterns and profiles: what a VM's use of a resource looks like, in words and numbers.

`profile_batch` turns a batch of series into profiles. Every pattern has a confidence from 0 to 1:
how often patterns of the same evidence held on the next cycle (or as long a time again), as counted
on series made for that (`calibration.py`). Peaks and troughs are times of the last cycle seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from roost.analysis.calibration import TABLES
from roost.analysis.grid import Floats, Ints
from roost.analysis.periods import Periods, find_periods

LEAST_POINTS = 24
_BLOCKS = 48
_LEAST_BLOCKS = 6


class PatternKind(StrEnum):
    """Kinds of patterns that a workload may have, several at once."""

    STEADY = "steady"
    GROWING = "growing"
    BURSTY = "bursty"
    CYCLIC = "cyclic"
    LEVEL_SHIFT = "level_shift"
    CHANGE_POINT = "change_point"


@dataclass(frozen=True, slots=True)
class WorkloadPattern:
    """One pattern: its kind, the length of its cycle (0: none), and when it was high and low.

    Of a level shift or change point `peaks_s` has the moment, and `troughs_s` nothing.
    """

    kind: PatternKind
    confidence: float
    cycle_s: float = 0.0
    peaks_s: tuple[int, ...] = ()
    troughs_s: tuple[int, ...] = ()
    evidence: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkloadProfile:
    """What was learnt of one series: patterns, numbers by name, and how alike its halves are.

    `stability` is 1 when the second half of the series has the same values as the first, 0 when
    they lie as far apart as the whole spreads. A series of too few values has no pattern and
    stability 0: nothing is known of it.
    """

    patterns: tuple[WorkloadPattern, ...]
    parameters: Mapping[str, float]
    stability: float

    def of_kind(self, kind: PatternKind) -> tuple[WorkloadPattern, ...]:
        """Return the patterns of a kind."""
        return tuple(pattern for pattern in self.patterns if pattern.kind is kind)


def confidence(kind: str, evidence: float) -> float:
    """Return how often patterns of a kind and such evidence were seen to hold on."""
    table = TABLES.get(kind)
    if table is None or not np.isfinite(evidence):
        return 0.0
    edges, shares = table
    return float(np.interp(evidence, edges, shares))


def profile_batch(values: Floats, start_s: int, step_s: int) -> list[WorkloadProfile]:
    """Describe every series of a batch whose first value is of `start_s`."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    periods = find_periods(values)
    numbers = describe(values)
    cyclic = cyclic_patterns(values, periods, start_s, step_s)
    shifts = _shifts(values)
    profiles = []
    for row in range(len(values)):
        known = int(numbers["points"][row])
        told = {name: float(column[row]) for name, column in numbers.items()}
        if known < LEAST_POINTS:
            profiles.append(WorkloadProfile((), told, 0.0))
            continue
        found = [*cyclic[row], *_others(told, cyclic[row])]
        for kind, size, at in zip(*(part[row] for part in shifts), strict=True):
            if kind:
                moment = start_s + int(at) * step_s
                name = PatternKind.LEVEL_SHIFT if kind == 1 else PatternKind.CHANGE_POINT
                sure = confidence(name.value, size)
                found.append(WorkloadPattern(name, sure, 0.0, (moment,), (), float(size)))
        profiles.append(WorkloadProfile(tuple(found), told, told["stability"]))
    return profiles


def describe(values: Floats) -> dict[str, Floats]:
    """Return numbers of every series by name, [series] each; 0 where nothing is known."""
    known = np.isfinite(values)
    points = known.sum(axis=1).astype(np.float64)
    safe = np.where(known.any(axis=1, keepdims=True), values, 0.0)
    quantiles = np.nanquantile(safe, (0.05, 0.5, 0.95, 0.99), axis=1) if safe.size else None
    if quantiles is None:
        quantiles = np.zeros((4, len(values)))
    low, middle, high, peak = quantiles
    mean = np.nanmean(safe, axis=1) if safe.size else np.zeros(len(values))
    deviation = np.nanstd(safe, axis=1) if safe.size else np.zeros(len(values))
    slope, agreement = _trend(_blocks(safe))
    spread = np.maximum(high - low, 1e-3 * np.abs(high) + 1e-12)
    return {
        "points": points,
        "mean": mean,
        "p50": middle,
        "p95": high,
        "p99": peak,
        "spread": high - low,
        "variation": deviation / np.maximum(np.abs(mean), 1e-12),
        "burst": (peak - middle) / np.maximum(np.abs(middle) + deviation, 1e-12),
        "trend": slope,
        "trend_agreement": agreement,
        "stability": _stability(safe, spread),
    }


def _blocks(values: Floats) -> Floats:
    """Return medians of equal blocks of time, NaN where a block has no value."""
    count = max(1, min(_BLOCKS, values.shape[1] // 4))
    size = max(1, values.shape[1] // count)
    cut = values[:, values.shape[1] - count * size :] if values.shape[1] >= count else values
    if not cut.size:
        return np.full((len(values), 1), np.nan)
    shaped = cut.reshape(len(values), -1, size)
    empty = ~np.isfinite(shaped).any(axis=2, keepdims=True)
    middle = np.nanmedian(np.where(empty, 0.0, shaped), axis=2, keepdims=True)
    return np.where(empty, np.nan, middle)[:, :, 0]


def _trend(blocks: Floats) -> tuple[Floats, Floats]:
    """Return the growth over the window and the share of block pairs that agree on its sign."""
    series, count = blocks.shape
    if count < _LEAST_BLOCKS:
        return np.zeros(series), np.zeros(series)
    time = np.linspace(-0.5, 0.5, count)
    known = np.isfinite(blocks)
    held = np.maximum(known.sum(axis=1, keepdims=True), 1)
    flat = np.where(known, blocks, 0.0)
    rest = np.where(known, flat - flat.sum(axis=1, keepdims=True) / held, 0.0)
    place = np.where(known, time - (known * time).sum(axis=1, keepdims=True) / held, 0.0)
    along = np.maximum((place * place).sum(axis=1), 1e-12)
    slope = (place * rest).sum(axis=1) / along
    half = count // 2
    ahead = np.sign(flat[:, half : 2 * half] - flat[:, :half])
    return slope, np.abs(ahead.mean(axis=1))


def _stability(values: Floats, spread: Floats) -> Floats:
    half = values.shape[1] // 2
    if half < 1:
        return np.zeros(len(values))
    parts = []
    for part in (values[:, :half], values[:, half:]):
        dark = ~np.isfinite(part).any(axis=1, keepdims=True)
        parts.append(np.nanquantile(np.where(dark, 0.0, part), np.arange(1, 10) / 10, axis=1))
    apart = np.abs(parts[0] - parts[1]).mean(axis=0) / spread
    return np.asarray(np.clip(1.0 - apart, 0.0, 1.0))


def cyclic_patterns(
    values: Floats, periods: Periods, start_s: int, step_s: int
) -> list[list[WorkloadPattern]]:
    """Return the cyclic patterns of every series, the strongest first."""
    from roost.analysis.kernels.folding import PHASES, fold

    rows, places = np.nonzero(periods.steps)
    steps = periods.steps[rows, places]
    profile, skill = np.zeros((len(rows), PHASES)), np.zeros(len(rows))
    upto = np.full(len(rows), values.shape[1], np.int64)
    fold(values, rows.astype(np.int64), steps, upto, profile, np.zeros(PHASES), skill)
    patterns: list[list[WorkloadPattern]] = [[] for _ in range(len(values))]
    for number, row in enumerate(rows):
        period = float(steps[number])
        peak, trough = (
            _last_time(int(np.argmax(sign * profile[number])), PHASES, period, values.shape[1])
            for sign in (1, -1)
        )
        evidence = float(skill[number]) if np.isfinite(skill[number]) else 0.0
        patterns[row].append(
            WorkloadPattern(
                PatternKind.CYCLIC,
                confidence(PatternKind.CYCLIC.value, evidence),
                period * step_s,
                (start_s + peak * step_s,),
                (start_s + trough * step_s,),
                evidence,
            )
        )
    return patterns


def _last_time(phase: int, phases: int, period: float, points: int) -> int:
    """Return the last step of a phase within so many points."""
    offset = (phase + 0.5) / phases * period
    return int(offset + np.floor((points - 1 - offset) / period) * period)


def _others(told: Mapping[str, float], cyclic: list[WorkloadPattern]) -> list[WorkloadPattern]:
    found = []
    level = max(abs(told["p50"]), abs(told["mean"]), 1e-12)
    if told["spread"] <= 0.25 * level or told["spread"] <= 1e-9:
        found.append((PatternKind.STEADY, 1.0 - told["spread"] / (0.25 * level + 1e-12)))
    if told["trend"] > 0.1 * level and told["trend_agreement"] > 0.8:
        found.append((PatternKind.GROWING, told["trend_agreement"] * told["stability"]))
    if told["burst"] > 2.0 and told["p99"] > 3 * abs(told["p50"]) and not cyclic:
        found.append((PatternKind.BURSTY, min(told["burst"] / 10.0, 1.0)))
    return [
        WorkloadPattern(kind, confidence(kind.value, evidence), evidence=evidence)
        for kind, evidence in found
    ]


def _shifts(values: Floats) -> tuple[Ints, Floats, Ints]:
    """Return kind (0 none, 1 level, 2 spread), size and step of the largest change, [series, 1].

    A level shift has medians of blocks on both sides that hardly overlap, and stays; the size is
    the distance over what the blocks vary by on each side. A change point changes the variation
    alone.
    """
    series, points = values.shape
    blocks = _blocks(np.where(np.isfinite(values).any(axis=1, keepdims=True), values, 0.0))
    count = blocks.shape[1]
    kind, size = np.zeros((series, 1), np.int64), np.zeros((series, 1))
    at = np.zeros((series, 1), np.int64)
    if count < 3 * _LEAST_BLOCKS:
        return kind, size, at
    # A gap of blocks takes the value before: it is no change, and hides none.
    smooth = _carried(blocks)
    block = max(1, points // count)
    first = points - count * block
    best = np.zeros(series)
    for cut in range(_LEAST_BLOCKS, count - _LEAST_BLOCKS):
        left, right = smooth[:, :cut], smooth[:, cut:]
        within = np.sqrt((left.var(axis=1) * cut + right.var(axis=1) * (count - cut)) / count)
        apart = np.abs(left.mean(axis=1) - right.mean(axis=1))
        # A trend looks like a shift at any cut: what varies within must not follow time.
        ratio = apart / np.maximum(within, 0.02 * np.abs(smooth).max(axis=1) + 1e-12)
        better = ratio > best
        best = np.where(better, ratio, best)
        at[:, 0] = np.where(better, first + cut * block, at[:, 0])
    # A straight trend reaches 3.5; a clean shift has no bound.
    kind[:, 0] = best > 5.0
    size[:, 0] = best
    jumps = np.abs(np.diff(smooth, axis=1))
    half = jumps.shape[1] // 2
    before, after = jumps[:, :half].mean(axis=1), jumps[:, -half:].mean(axis=1)
    times = np.maximum(before, after) / np.maximum(
        np.minimum(before, after), 1e-9 + 0.01 * np.abs(smooth).max(axis=1)
    )
    changed = (kind[:, 0] == 0) & (times > 4.0)
    kind[changed, 0] = 2
    size[changed, 0] = times[changed]
    at[changed, 0] = first + _turn(jumps[changed], np.abs(smooth[changed]).max(axis=1)) * block
    return kind, size, at


def _carried(blocks: Floats) -> Floats:
    """Return blocks of which those without a value have that before, or the first there is."""
    known = np.isfinite(blocks)
    last = np.maximum.accumulate(np.where(known, np.arange(blocks.shape[1]), -1), axis=1)
    last = np.where(last < 0, known.argmax(axis=1)[:, None], last)
    return np.asarray(np.take_along_axis(blocks, last, axis=1))


def _turn(jumps: Floats, scale: Floats) -> Ints:
    """Return the block of each series from which on the jumps between blocks are of another size.

    Of all cuts the one at which two sizes say the jumps best, by the likelihood of exponential
    ones: the ratio of both sides alone is largest where one side has few.
    """
    series, count = jumps.shape
    least = 1e-9 + 1e-5 * scale
    best, turn = np.full(series, np.inf), np.zeros(series, np.int64)
    for cut in range(_LEAST_BLOCKS, count - _LEAST_BLOCKS + 1):
        before, after = jumps[:, :cut].mean(axis=1), jumps[:, cut:].mean(axis=1)
        said = cut * np.log(np.maximum(before, least))
        said += (count - cut) * np.log(np.maximum(after, least))
        turn = np.where(said < best, cut + 1, turn)
        best = np.minimum(said, best)
    return turn
