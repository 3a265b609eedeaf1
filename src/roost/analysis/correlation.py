"""Who moves with whom: resources of one VM with a lag, and VMs of a fleet that peak together.

Ten thousand VMs have fifty million pairs. Each VM is therefore drawn as a sketch (the signs of its
standardised shape along random directions); VMs that agree on the bits of one of several keys are
candidates, and only candidates are compared exactly. Directions come from the seed of the caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roost.analysis.grid import Floats, Ints, filled

#: Bits of a key and keys of a sketch: a pair of correlation 0.9 (an angle of 26 degrees) shares one
#: of 24 keys of 12 bits with a chance of 0.98, one of 0.3 with 0.07.
_BITS, _KEYS = 12, 24
#: Values of a shape: means of so many stretches of time.
_SHAPE = 168
#: Steps in which two resources must both be known to be compared: a day of five minutes.
_LEAST_POINTS = 288
#: Members of a key that are compared with each other; a larger key is taken in pieces.
_MOST_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class Lagged:
    """The strongest correlation of two series: the second follows the first by `lag` steps."""

    correlation: float
    lag: int


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What waits when a resource peaks: by how much it is then above its usual, in deviations."""

    resource: str
    excess: float
    share: float


def standardised(values: Floats) -> Floats:
    """Return series of mean 0 and length 1, gaps as the mean; a constant is all zero."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known, values, 0.0).sum(axis=1, keepdims=True) / count
    rest = np.where(known, values - mean, 0.0)
    norm = np.sqrt((rest * rest).sum(axis=1, keepdims=True))
    small = norm <= 1e-9 * np.maximum(np.abs(mean), 1e-300) * np.sqrt(count)
    return np.where(small, 0.0, rest / np.where(small, 1.0, norm))


def lagged(first: Floats, second: Floats, most: int) -> Lagged:
    """Find the lag up to `most` steps, either way, at which two series correlate most.

    Of equal correlations the shortest lag counts. Constants and short series have none.
    """
    points = len(first)
    most = min(most, points // 2)
    if points < 8:
        return Lagged(0.0, 0)
    one, two = standardised(np.stack([first, second]))
    length = 1 << int(np.ceil(np.log2(2 * points)))
    product = np.fft.irfft(np.conj(np.fft.rfft(one, length)) * np.fft.rfft(two, length), length)
    lags = sorted(range(-most, most + 1), key=abs)
    # The overlap shrinks with the lag; without this a long lag could never win.
    scaled = [float(product[lag]) * points / (points - abs(lag)) for lag in lags]
    at = int(np.argmax(np.round(np.abs(scaled), 6)))
    return Lagged(float(np.clip(scaled[at], -1.0, 1.0)), lags[at])


def bottleneck(
    peaking: Floats, others: Mapping[str, Floats], quantile: float = 0.95, *, least: float = 0.0
) -> Bottleneck | None:
    """Return the resource that is highest above its usual while another one peaks, or None.

    `share` is the part of the peaks in which that resource is above its own `quantile`. One whose
    mean in the peaks is below `least` is passed over.
    """
    known = np.isfinite(peaking)
    if known.sum() < 20:
        return None
    high = known & (peaking >= np.nanquantile(peaking, quantile))
    best: Bottleneck | None = None
    for name, values in sorted(others.items()):
        there = np.isfinite(values)
        during = values[high & there]
        usual = values[~high & there]
        if len(during) < 3 or len(usual) < 10 or during.mean() < least:
            continue
        # What stands still but for the peaks, as waiting often does, is measured by all of it.
        deviation = usual.std() or values[there].std()
        if deviation <= 0:
            continue
        excess = float((during.mean() - usual.mean()) / deviation)
        share = float(np.mean(during >= np.quantile(values[there], quantile)))
        if excess > 1.0 and (best is None or excess > best.excess):
            best = Bottleneck(name, excess, share)
    return best


@dataclass(frozen=True, slots=True)
class Related:
    """Two resources of a VM that move alike: the second follows the first by `lag` steps."""

    first: str
    second: str
    correlation: float
    lag: int


def related(figures: Mapping[str, Floats], most: int, least: float = 0.6) -> list[Related]:
    """Return the pairs of resources that correlate at least so much, the strongest first.

    Who leads stands first: of two without a lag, the first by name.
    """
    found = []
    names = sorted(figures)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            both = np.isfinite(figures[one]) & np.isfinite(figures[other])
            if both.sum() < _LEAST_POINTS:
                continue
            seen = lagged(
                np.where(both, figures[one], np.nan), np.where(both, figures[other], np.nan), most
            )
            if abs(seen.correlation) >= least:
                lead, follow = (one, other) if seen.lag >= 0 else (other, one)
                found.append(Related(lead, follow, seen.correlation, abs(seen.lag)))
    return sorted(found, key=lambda pair: (-abs(pair.correlation), pair.first, pair.second))


def shapes(values: Floats) -> Floats:
    """Return the course of each series in a few numbers, standardised: what is compared."""
    points = values.shape[1]
    count = min(_SHAPE, points)
    edges = np.linspace(0, points, count + 1).astype(np.int64)[:-1]
    return standardised(np.add.reduceat(filled(values), edges, axis=1)) if points else values


def alike(
    values: Floats, rng: np.random.Generator, least: float = 0.8
) -> tuple[Ints, Ints, Floats]:
    """Find pairs of series whose shapes correlate at least so much: rows, rows, correlations.

    Pairs are found by sketches: nearly all of 0.9 and more, most of 0.8. What is found is exact.
    """
    shape = shapes(values)
    live = np.flatnonzero((shape * shape).sum(axis=1) > 0.5)
    if len(live) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    directions = rng.standard_normal((shape.shape[1], _BITS * _KEYS))
    signs = (shape[live] @ directions > 0).reshape(len(live), _KEYS, _BITS)
    keys = signs @ (1 << np.arange(_BITS))
    found: list[npt.NDArray[np.int64]] = []
    told: list[Floats] = []
    for key in range(_KEYS):
        order = np.argsort(keys[:, key], kind="stable")
        bounds = np.flatnonzero(np.diff(keys[order, key])) + 1
        for members in np.split(order, bounds):
            for begin in range(0, len(members), _MOST_TOGETHER):
                some = members[begin : begin + _MOST_TOGETHER]
                if len(some) < 2:
                    continue
                part = shape[live[some]]
                correlation = part @ part.T
                left, right = np.nonzero(np.triu(correlation >= least, 1))
                pair = np.sort(np.stack([live[some[left]], live[some[right]]]), axis=0)
                found.append(pair[0] * len(values) + pair[1])
                told.append(correlation[left, right])
    codes = np.concatenate(found) if found else np.empty(0, np.int64)
    codes, at = np.unique(codes, return_index=True)
    correlations = np.concatenate(told)[at] if told else np.empty(0)
    return codes // len(values), codes % len(values), correlations


def peak_groups(
    values: Floats, rng: np.random.Generator, least: float = 0.8
) -> list[tuple[int, ...]]:
    """Return groups of series that peak together, the largest first; each is in one group at most.

    A group forms around the series with the most partners that are still free: everybody in it
    correlates with that one, so that a chain of neighbours does not become one group.
    """
    first, second, _ = alike(values, rng, least)
    return groups_of_pairs(first, second)


def groups_of_pairs(first: Ints, second: Ints) -> list[tuple[int, ...]]:
    """Return groups that pairs of series make, as `peak_groups` does."""
    partners: dict[int, set[int]] = {}
    for one, two in zip(first.tolist(), second.tolist(), strict=True):
        partners.setdefault(one, set()).add(two)
        partners.setdefault(two, set()).add(one)
    groups, taken = [], set[int]()
    for centre in sorted(partners, key=lambda row: (-len(partners[row]), row)):
        if centre not in taken:
            members = sorted({centre, *partners[centre]} - taken)
            if len(members) > 1:
                taken.update(members)
                groups.append(tuple(members))
    return sorted(groups, key=lambda group: (-len(group), group))
