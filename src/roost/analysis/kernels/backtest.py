"""Forecast models, tried on the past of each series: the best by horizon, and how far it was off.

A model says the value `ahead` steps after an origin from what was known before the origin, and from
nothing else. Level models say the same for every step; seasonal ones look whole cycles back.

    number  model                                 family
    0-4     median of the last 1, 6, 24, 144, 864 recent level
    5, 6    exponential smoothing, 0.05 and 0.3   exponential smoothing
    7       level and damped trend                exponential smoothing
    8       the value one cycle ago               seasonal naive
    9       median over up to 7 cycles            several cycles back
    10      profiles of two cycles and a level    several seasonal
    11, 12  halves of 9 and of 2 or 3             blend
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roost.analysis.grid import Floats, Ints
from roost.analysis.kernels.compiling import entry_point, kernel
from roost.analysis.kernels.lines import smallest

MODELS = 13
LEVELS = 8
CYCLES_BACK = 7
#: Bins of a cycle's profile: a quarter of an hour of a day at 5 minutes, no finer.
BINS = 144
#: Origins whose errors an interval is made of, at least: those of one origin are alike, and of few
#: the largest is no bound. Of daily and of flat made series of up to 2.3 days, bounds of 0.9 from
#: three origins held 52 to 88% of what came by range, those from four 77 to 88%.
LEAST_ORIGINS = 4
PHI = 0.98
_SLOW, _FAST = 0.05, 0.3


class Plan(NamedTuple):
    """Where models are tried: origins (ascending), steps ahead (from 1), each step's bucket."""

    origins: Ints
    steps: Ints
    bucket: Ints


class Work(NamedTuple):
    """Scratch of one series: `rest` is what profiles leave of its values, from some step on."""

    sorting: Floats
    levels: Floats
    profile: Floats
    counts: Floats
    errors: Floats
    states: Floats
    rest: Floats


class Fitted(NamedTuple):
    """What was learnt, [series, bucket]: the model's number, its mean error, signed quantiles."""

    model: Ints
    error: Floats
    low: Floats
    high: Floats


@kernel
def median_of_last(
    values: Floats, row: int, origin: int, window: int, stride: int, sorting: Floats
) -> float:
    """Return the median of every `stride`-th of the last `window` values before the origin."""
    count = 0
    at = origin - 1
    while at >= 0 and at > origin - 1 - window:
        sorting[count] = values[row, at]
        count += 1
        at -= stride
    return smallest(sorting, count, (count - 1) // 2)


@kernel
def set_levels(
    values: Floats, row: int, origin: int, states: Floats, sorting: Floats, levels: Floats
) -> int:
    """Fill `levels` at an origin; `states` are the smoothed values there."""
    levels[0] = values[row, origin - 1]
    levels[1] = median_of_last(values, row, origin, 6, 1, sorting)
    levels[2] = median_of_last(values, row, origin, 24, 1, sorting)
    levels[3] = median_of_last(values, row, origin, 144, 2, sorting)
    levels[4] = median_of_last(values, row, origin, 864, 8, sorting)
    for at in range(4):
        levels[5 + at] = states[at]
    return 0


@kernel
def smooth(value: float, states: Floats) -> int:
    """Move the smoothed values on by one: slow, fast, level and trend."""
    states[0] += _SLOW * (value - states[0])
    states[1] += _FAST * (value - states[1])
    before = states[2]
    expected = before + PHI * states[3]
    states[2] = expected + 0.1 * (value - expected)
    states[3] = PHI * states[3] + 0.005 * (value - expected)
    return 0


@kernel
def bin_of(at: int, period: float) -> int:
    """Return the bin of a step in the profile of a period."""
    bins = min(BINS, max(1, int(period)))
    turn = at / period
    return min(bins - 1, int((turn - np.floor(turn)) * bins))


@kernel
def set_profiles(
    values: Floats, row: int, known: int, periods: Floats, profile: Floats, counts: Floats
) -> int:
    """Fill `profile` [2, BINS] with means by phase, those of the second of what is left."""
    mean = 0.0
    for at in range(known):
        mean += values[row, at]
    mean /= max(known, 1)
    for number in range(2):
        for place in range(BINS):
            profile[number, place] = 0.0
            counts[place] = 0.0
        period = periods[row, number]
        if period < 2.0:
            continue
        for at in range(known):
            rest = values[row, at] - mean
            if number == 1 and periods[row, 0] >= 2.0:
                rest -= profile[0, bin_of(at, periods[row, 0])]
            place = bin_of(at, period)
            profile[number, place] += rest
            counts[place] += 1.0
        for place in range(BINS):
            # Two values more of nothing: a phase seen once is hardly believed.
            profile[number, place] /= counts[place] + 1.0
    return 0


@kernel
def cycle(at: int, row: int, periods: Floats, profile: Floats) -> float:
    """Return the sum of both profiles at a step."""
    total = 0.0
    for number in range(2):
        if periods[row, number] >= 2.0:
            total += profile[number, bin_of(at, periods[row, number])]
    return total


@kernel
def set_rest(
    values: Floats, row: int, begin: int, end: int, periods: Floats, profile: Floats, rest: Floats
) -> int:
    """Fill `rest` with what the profiles leave of the values from a step up to another."""
    for at in range(begin, end):
        rest[at - begin] = values[row, at] - cycle(at, row, periods, profile)
    return 0


@kernel
def rest_of_last(origin: int, begin: int, rest: Floats) -> tuple[float, float]:
    """Return the mean of the last 12 values and of the last 144; `rest` is from `begin` on."""
    short, long = 0.0, 0.0
    for back in range(1, min(144, origin) + 1):
        left = rest[origin - begin - back]
        long += left
        if back <= 12:
            short += left
    return short / min(12, origin), long / min(144, origin)


@kernel
def cycles_back(
    values: Floats, row: int, origin: int, ahead: int, period: float, most: int, sorting: Floats
) -> float:
    """Return the median over up to `most` cycles before, or NaN when none was seen."""
    count, number = 0, 1
    target = origin + ahead - 1
    while count < most:
        at = target - int(number * period + 0.5)
        number += 1
        if at < 0:
            break
        if at < origin:
            place, value = count, values[row, at]
            while place > 0 and sorting[place - 1] > value:
                sorting[place] = sorting[place - 1]
                place -= 1
            sorting[place] = value
            count += 1
    if count == 0:
        return np.nan
    low = sorting[(count - 1) // 2]
    return low if count % 2 == 1 else 0.5 * (low + sorting[count // 2])


@kernel
def damped(ahead: int) -> float:
    """Return how many steps of a damped trend lie in so many steps."""
    return PHI * (1.0 - PHI**ahead) / (1.0 - PHI)


@kernel
def tell(
    model: int, values: Floats, row: int, origin: int, ahead: int, periods: Floats, work: Work
) -> float:
    """Return what a model says, from levels and profiles that are set for the origin."""
    levels = work.levels
    if model < 7:
        return levels[model]
    if model == 7:
        return levels[7] + damped(ahead) * levels[8]
    period = periods[row, 0]
    if model == 8:
        return cycles_back(values, row, origin, ahead, period, 1, work.sorting)
    if model == 10:
        fade = np.exp(-ahead / 36.0)
        level = fade * levels[9] + (1.0 - fade) * levels[10]
        return level + cycle(origin + ahead - 1, row, periods, work.profile)
    told = cycles_back(values, row, origin, ahead, period, CYCLES_BACK, work.sorting)
    if model == 9:
        return told
    return 0.5 * (told + levels[model - 9])


@kernel
def at_origin(values: Floats, row: int, origin: int, begin: int, states: Floats, work: Work) -> int:
    """Set levels for an origin; profiles, and what they leave from `begin` on, are set."""
    set_levels(values, row, origin, states, work.sorting, work.levels)
    short, long = rest_of_last(origin, begin, work.rest)
    work.levels[9] = short
    work.levels[10] = long
    return 0


@kernel
def choose(
    plan: Plan,
    errors: Floats,
    tried: int,
    coverage: Floats,
    sorting: Floats,
    row: int,
    fitted: Fitted,
) -> int:
    """Choose the model of each bucket by its mean absolute error, and its signed quantiles.

    A bucket that too few origins have tried keeps its model, without quantiles.
    """
    end = 0
    for bucket in range(fitted.model.shape[1]):
        begin = end  # steps ascend, and their buckets with them
        while end < len(plan.steps) and plan.bucket[end] == bucket:
            end += 1
        best, least = 0, np.inf
        for model in range(MODELS):
            total, count = 0.0, 0
            for number in range(tried):
                for at in range(begin, end):
                    if np.isfinite(errors[model, number, at]):
                        total += abs(errors[model, number, at])
                        count += 1
            if count > 0 and total / count < least:
                best, least = model, total / count
        count, seen = 0, 0
        for number in range(tried):
            before = count
            for at in range(begin, end):
                if np.isfinite(errors[best, number, at]):
                    sorting[count] = errors[best, number, at]
                    count += 1
            seen += count > before
        fitted.model[row, bucket] = best
        fitted.error[row, bucket] = least if count > 0 else np.nan
        fitted.low[row, bucket] = np.nan
        fitted.high[row, bucket] = np.nan
        if seen >= LEAST_ORIGINS:
            # The rank of a conformal quantile: of n errors the (n + 1) q-th.
            tail = 0.5 * (1.0 - coverage[bucket])
            low = int(np.floor((count + 1) * tail)) - 1
            high = int(np.ceil((count + 1) * (1.0 - tail))) - 1
            fitted.low[row, bucket] = smallest(sorting, count, max(low, 0))
            fitted.high[row, bucket] = smallest(sorting, count, min(high, count - 1))
    return 0


@entry_point
def backtest(
    values: Floats,
    known: npt.NDArray[np.bool_],
    periods: Floats,
    plan: Plan,
    coverage: Floats,
    work: Work,
    fitted: Fitted,
) -> int:
    """Try every model at every origin of the plan, and fill `fitted` for each series.

    `values` has no gaps, and may be longer than `known`: what lies beyond is not read. Errors are
    taken where `known` is true. `periods` [series, 2] in steps,
    0 for none; `coverage` is that of the quantiles, by bucket. Profiles are learnt before the first
    origin, so that no model sees what it tells.
    """
    points = known.shape[1]
    for row in range(values.shape[0]):
        first = plan.origins[0]
        set_profiles(values, row, first, periods, work.profile, work.counts)
        # Origins share most of the steps before them: what is left of each is reckoned once.
        last, begin = plan.origins[len(plan.origins) - 1], max(0, first - 144)
        set_rest(values, row, begin, last, periods, work.profile, work.rest)
        states = work.states
        states[0] = states[1] = states[2] = values[row, 0]
        states[3] = 0.0
        upto, tried = 0, 0
        for origin in plan.origins:
            while upto < origin:
                smooth(values[row, upto], states)
                upto += 1
            at_origin(values, row, origin, begin, states, work)
            for at in range(len(plan.steps)):
                target = origin + plan.steps[at] - 1
                there = target < points and known[row, min(target, points - 1)]
                back = np.nan
                for model in range(MODELS):
                    work.errors[model, tried, at] = np.nan
                    if not there or (model >= 8 and periods[row, 0] < 2.0):
                        continue
                    if model <= 10:
                        told = tell(model, values, row, origin, plan.steps[at], periods, work)
                        if model == 9:
                            back = told
                    else:
                        told = 0.5 * (back + work.levels[model - 9])
                    work.errors[model, tried, at] = values[row, target] - told
            tried += 1
        choose(plan, work.errors, tried, coverage, work.sorting, row, fitted)
    return 0


@entry_point
def settle(
    values: Floats, points: int, periods: Floats, work: Work, profiles: Floats, states: Floats
) -> int:
    """Fill profiles [series, 2, BINS] and smoothed states [series, 4] after so many points."""
    for row in range(values.shape[0]):
        set_profiles(values, row, points, periods, work.profile, work.counts)
        for number in range(2):
            for place in range(BINS):
                profiles[row, number, place] = work.profile[number, place]
        states[row, 0] = states[row, 1] = states[row, 2] = values[row, 0]
        states[row, 3] = 0.0
        for at in range(points):
            smooth(values[row, at], states[row])
    return 0


@kernel
def recall(
    values: Floats,
    row: int,
    points: int,
    periods: Floats,
    work: Work,
    profiles: Floats,
    states: Floats,
) -> int:
    """Set the work for a series as it is after so many points."""
    for number in range(2):
        for place in range(BINS):
            work.profile[number, place] = profiles[row, number, place]
    begin = max(0, points - 144)
    set_rest(values, row, begin, points, periods, work.profile, work.rest)
    return at_origin(values, row, points, begin, states[row], work)


@entry_point
def forecast(
    values: Floats,
    points: int,
    periods: Floats,
    bucket: Ints,
    fitted: Fitted,
    work: Work,
    kept: tuple[Floats, Floats],
    told: Floats,
) -> int:
    """Fill `told` [3, series, ahead] with point, low and high of each step, by its bucket's model.

    `kept` is the pair of profiles and states that `settle` has filled.
    """
    for row in range(values.shape[0]):
        recall(values, row, points, periods, work, kept[0], kept[1])
        for at in range(told.shape[2]):
            model = fitted.model[row, bucket[at]]
            point = tell(model, values, row, points, at + 1, periods, work)
            if not np.isfinite(point):
                point = work.levels[2]
            told[0, row, at] = point
            told[1, row, at] = point + fitted.low[row, bucket[at]]
            told[2, row, at] = point + fitted.high[row, bucket[at]]
    return 0


@entry_point
def advance(
    values: Floats,
    points: int,
    sample: Floats,
    periods: Floats,
    fitted: Fitted,
    work: Work,
    kept: tuple[Floats, Floats],
    following: Floats,
) -> int:
    """Append one sample to every series, and say the next one.

    `following` [series, 4] has point, low, high of the next sample, and the factor by which its
    interval is wider than that of the back-test: grown by a miss, shrunk a little by a hit, so that
    a tenth of the samples misses in the long run. A sample that is NaN carries the last value on.
    """
    for row in range(values.shape[0]):
        value = sample[row]
        if np.isfinite(value):
            if np.isfinite(following[row, 1]):
                hit = following[row, 1] <= value <= following[row, 2]
                factor = following[row, 3] * (0.995 if hit else 1.045)
                following[row, 3] = min(8.0, max(0.25, factor))
        else:
            value = values[row, points - 1]
        values[row, points] = value
        smooth(value, kept[1][row])
        recall(values, row, points + 1, periods, work, kept[0], kept[1])
        model = fitted.model[row, 0]
        point = tell(model, values, row, points + 1, 1, periods, work)
        if not np.isfinite(point):
            point = work.levels[2]
        following[row, 0] = point
        following[row, 1] = point + following[row, 3] * fitted.low[row, 0]
        following[row, 2] = point + following[row, 3] * fitted.high[row, 0]
    return 0
