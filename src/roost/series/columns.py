"""Readings of one subject in columns: merged, turned into rates, rolled up. Pure.

Times ascend and occur once. Of two readings of one moment the later one written wins, figure by
figure. A rate is the difference to the reading before; none is made where the counter has begun
anew or the readings are too far apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from roost.model.series import (
    COUNTERS,
    MINUTE_MS,
    NOTES,
    RATES,
    SECOND_MS,
    STATISTICS,
    Columns,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Two readings farther apart than this say nothing of the time between them.
MOST_GAP_MS = 10 * MINUTE_MS
#: Which of the sorted readings is the 95th percentile: the nearest rank.
_P95 = 0.95

NOTHING = Columns(np.empty(0, np.int64), {})


def span(columns: Columns, first_ms: int, until_ms: int) -> Columns:
    """Return the part of columns from a moment up to, and without, another."""
    begin, end = np.searchsorted(columns.at_ms, (first_ms, until_ms))
    if begin == 0 and end == len(columns):
        return columns
    return Columns(
        columns.at_ms[begin:end], {name: v[begin:end] for name, v in columns.figures.items()}
    )


def merge(parts: Sequence[Columns]) -> Columns:
    """Return columns as one, in the order of time; later parts win, figure by figure."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts and _ascends(parts[0].at_ms) else _sorted(parts)
    if all(before.at_ms[-1] < after.at_ms[0] for before, after in pairwise(parts)) and all(
        _ascends(part.at_ms) for part in parts
    ):
        return _joined(parts)
    return _sorted(parts)


def _ascends(at_ms: Ints) -> bool:
    return bool((np.diff(at_ms) > 0).all())


def _names(parts: Iterable[Columns]) -> list[str]:
    return sorted({name for part in parts for name in part.figures})


def _joined(parts: Sequence[Columns]) -> Columns:
    figures = {}
    for name in _names(parts):
        pieces = [
            found if (found := part.figures.get(name)) is not None else np.full(len(part), np.nan)
            for part in parts
        ]
        figures[name] = np.concatenate(pieces)
    return Columns(np.concatenate([part.at_ms for part in parts]), figures)


def _sorted(parts: Sequence[Columns]) -> Columns:
    if not parts:
        return NOTHING
    joined = _joined(parts)
    order = np.argsort(joined.at_ms, kind="stable")  # those of one moment stay in their order
    at_ms = joined.at_ms[order]
    first = np.concatenate(([True], np.diff(at_ms) > 0))
    if first.all():
        return Columns(at_ms, {name: v[order] for name, v in joined.figures.items()})
    group = np.cumsum(first) - 1
    rows = int(group[-1]) + 1
    figures = {}
    for name, values in joined.figures.items():
        ordered = values[order]
        known = ~np.isnan(ordered)
        column = np.full(rows, np.nan)
        column[group[known]] = ordered[known]  # of several for one place the last one stays
        figures[name] = column
    return Columns(at_ms[first], figures)


def with_rates(columns: Columns, wanted: Iterable[str] | None = None) -> Columns:
    """Return columns with the rates of their counters beside them, all or those that are wanted."""
    names = None if wanted is None else set(wanted)
    figures = dict(columns.figures)
    gaps = np.diff(columns.at_ms)
    for counter, rate in RATES.items():
        if counter in figures and (names is None or rate in names):
            figures[rate] = _rate(figures[counter], gaps)
    return Columns(columns.at_ms, figures)


def _rate(counter: Floats, gaps: Ints) -> Floats:
    """Return a counter's growth each second, rounded; of the first reading nothing is known."""
    rate = np.full(len(counter), np.nan)
    grown = np.diff(counter)
    # One that is smaller began anew, with another process.
    with np.errstate(invalid="ignore"):
        right = (grown >= 0) & (gaps <= MOST_GAP_MS)
    rate[1:][right] = np.rint(grown[right] * 1000.0 / gaps[right])
    return rate


def roll_up(columns: Columns, bucket_ms: int) -> Columns:
    """Return mean, maximum and 95th percentile of gauges and rates over buckets of time."""
    names = sorted(columns.figures.keys() - COUNTERS - NOTES)
    if not len(columns) or not names:
        return NOTHING
    values = np.stack([columns.figures[name] for name in names], axis=1)
    buckets = columns.at_ms // bucket_ms
    begins = np.flatnonzero(np.concatenate(([True], np.diff(buckets) > 0)))
    ends = np.append(begins[1:], len(buckets))
    means, highest, high = (np.empty((len(begins), len(names))) for _ in STATISTICS)
    places = np.arange(len(names))
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        rows = np.sort(values[begin:end], axis=0)  # what is unknown comes last
        known = (end - begin) - np.isnan(rows).sum(axis=0)
        last = np.maximum(known - 1, 0)
        rank = np.maximum(np.ceil(_P95 * known).astype(np.int64) - 1, 0)
        highest[row], high[row] = rows[last, places], rows[rank, places]
        with np.errstate(invalid="ignore"):
            means[row] = np.nansum(rows, axis=0) / np.where(known > 0, known, np.nan)
    figures: dict[str, Floats] = {}
    whole = (np.isnan(values) | (values == np.rint(values))).all(axis=0)
    means = np.where(whole, np.rint(means), np.round(means, 4))
    for place, name in enumerate(names):
        figures[f"{name}.mean"] = means[:, place]
        figures[f"{name}.max"] = highest[:, place]
        figures[f"{name}.p95"] = high[:, place]
    return Columns(buckets[begins] * bucket_ms, figures)


def thinned(columns: Columns, most: int) -> Columns:
    """Return columns of at most so many rows: of more, the last one of each second."""
    if len(columns) <= most:
        return columns
    last = np.append(np.diff(columns.at_ms // SECOND_MS) > 0, True)
    return Columns(columns.at_ms[last], {name: v[last] for name, v in columns.figures.items()})


def replaced(old: Columns, new: Columns, spans: Sequence[tuple[int, int]]) -> Columns:
    """Return old columns in which the rows of some spans of time are the new ones."""
    keep = np.ones(len(old), dtype=np.bool_)
    for first_ms, until_ms in spans:
        keep &= (old.at_ms < first_ms) | (old.at_ms >= until_ms)
    rest = Columns(old.at_ms[keep], {name: v[keep] for name, v in old.figures.items()})
    return merge([rest, new])


def chosen(columns: Columns, wanted: Sequence[str] | None) -> Columns:
    """Return columns without those that nobody asked for, and without empty ones.

    Without names, all but the store's own notes are asked for.
    """
    figures: Mapping[str, Floats] = {
        name: values
        for name, values in sorted(columns.figures.items())
        if (name.partition(".")[0] not in NOTES if wanted is None else name in wanted)
        and not np.isnan(values).all()
    }
    return Columns(columns.at_ms, figures)
