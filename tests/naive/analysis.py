"""Plain-loop twins of the kernels of the analysis: slow, obvious, and without NumPy's help."""

import math
from collections.abc import Sequence

Line = tuple[float, float, float]


def flatten(values: Sequence[float], size: int) -> tuple[list[float], list[float], list[int]]:
    """Return residuals of a straight line at variance 1 (0 in gaps), block means and counts."""
    known = [at for at, value in enumerate(values) if math.isfinite(value)]
    flat = [0.0] * len(values)
    blocks = -(-len(values) // size)
    largest = max((abs(values[at]) for at in known), default=0.0)
    if known and largest > 1e-300:
        scaled = {at: values[at] / largest for at in known}
        mean = sum(scaled.values()) / len(known)
        middle = sum(known) / len(known)
        along = sum((at - middle) ** 2 for at in known)
        slope = sum((at - middle) * (scaled[at] - mean) for at in known) / along if along else 0.0
        rest = {at: scaled[at] - mean - slope * (at - middle) for at in known}
        spread = math.sqrt(sum(value**2 for value in rest.values()) / len(known))
        if spread > 1e-7:
            for at in known:
                flat[at] = rest[at] / spread
    coarse, held = [0.0] * blocks, [0] * blocks
    for at in known:
        coarse[at // size] += flat[at]
        held[at // size] += 1
    return flat, [c / h if h else 0.0 for c, h in zip(coarse, held, strict=True)], held


def levels(
    power: Sequence[float], edges: Sequence[int], share: float, lines: Sequence[Line], reach: float
) -> list[float]:
    """Return the background of each band, without what lies near lines."""
    found: list[float] = []
    for band in reversed(range(len(edges) - 1)):
        stride = max(1, (edges[band + 1] - edges[band]) // 128)
        bins = range(edges[band], edges[band + 1], stride)
        free = sorted(power[at] for at in bins if all(abs(at - x[0]) > reach for x in lines))
        if free and 4 * len(free) >= len(bins):
            found.append(free[int(share * (len(free) - 1))])
        else:
            found.append(found[-1] if found else 0.0)
    return found[::-1]


def floor_at(at: int, edges: Sequence[int], level: Sequence[float]) -> float:
    """Return the background at a bin: a line from middle to middle."""
    band = max(b for b in range(len(edges) - 1) if b == 0 or at >= edges[b])
    middle = (edges[band] + edges[band + 1]) / 2
    other = band - 1 if at < middle else band + 1
    if not 0 <= other < len(edges) - 1:
        return level[band]
    far = (edges[other] + edges[other + 1]) / 2
    return level[band] + (at - middle) / (far - middle) * (level[other] - level[band])


def find_lines(
    power: Sequence[float],
    edges: Sequence[int],
    share: float,
    ratios: tuple[float, float],
    reach: float,
    most: int,
) -> list[Line]:
    """Return position, power and ratio of each peak, the strongest first."""
    level = levels(power, edges, share, [], reach)
    peaks: list[Line] = []
    for at in range(edges[0] + 1, len(power) - 1):
        here = power[at]
        if here <= 0 or here <= power[at - 1] or here < power[at + 1]:
            continue
        if here < ratios[0] * floor_at(at, edges, level):
            continue
        below, above = (math.log(max(power[b], 1e-30 * here)) for b in (at - 1, at + 1))
        bend = below - 2 * math.log(here) + above
        shift = min(0.5, max(-0.5, 0.5 * (below - above) / bend)) if bend < 0 else 0.0
        peaks.append((at + shift, here, 0.0))
    peaks = sorted(peaks, key=lambda line: -line[1])[:most]
    level = levels(power, edges, share, peaks, reach)
    rated = [
        (at, here, here / max(floor_at(int(at + 0.5), edges, level), 1e-12 * here))
        for at, here, _ in peaks
    ]
    return [line for line in rated if line[2] >= ratios[1]]


def is_overtone(line: Line, base: Line, lines: Sequence[Line], points: int) -> bool:
    """Say whether a line belongs to a cycle that is not a sine."""
    multiple = math.floor(line[0] / base[0] + 0.5)
    weak = line[1] < 0.16 * base[1]
    slack = min(1.0, 0.25 + 0.08 * multiple) if weak else min(0.5, 0.2 + 0.06 * multiple)
    if multiple >= 2 and abs(line[0] - multiple * base[0]) <= slack:
        if line[1] < (0.42 if multiple == 2 else 0.25) * base[1]:
            return True
        numbers = [multiple + 1] + ([multiple - 1] if multiple > 2 else [])
        beside = [x[1] for x in lines for k in numbers if abs(x[0] - k * base[0]) <= slack + 0.1]
        return line[1] < (6.0 if multiple == 2 else 4.0) * max(beside, default=0.0)
    folded = (
        abs(k * base[0] - points * math.floor(k * base[0] / points + 0.5))
        for k in range(3, 20)
        if k * base[0] > 0.5 * points
    )
    return weak and any(abs(at - line[0]) <= 0.6 for at in folded)


def fundamentals(
    lines: Sequence[Line], points: int, least_ratio: float, least_share: float, most: int
) -> list[int]:
    """Return the numbers of the lines that are periods, the slowest first."""
    able = [
        number
        for number, line in enumerate(lines)
        if line[2] >= least_ratio and line[1] >= least_share * lines[0][1]
    ]
    kept: list[int] = []
    for number in sorted(able, key=lambda n: lines[n][0]):
        overtone = any(is_overtone(lines[number], lines[b], lines, points) for b in kept)
        if not overtone and len(kept) < most:
            kept.append(number)
    return kept


def fold(
    values: Sequence[float], period: float, upto: int, phases: int
) -> tuple[list[float], float]:
    """Return the profile of a cycle, and its skill for the last one learnt without that."""

    def phase(at: int) -> int:
        turn = at / period
        return min(phases - 1, int((turn - math.floor(turn)) * phases))

    def learn(until: int) -> list[float]:
        known = [at for at in range(until) if math.isfinite(values[at])]
        mean = sum(values[at] for at in known) / max(len(known), 1)
        sums, counts = [0.0] * phases, [0] * phases
        for at in known:
            sums[phase(at)] += values[at] - mean
            counts[phase(at)] += 1
        return [s / c if c else 0.0 for s, c in zip(sums, counts, strict=True)]

    cut = max(0, upto - int(period + 0.5))
    before = learn(cut)
    last = [at for at in range(cut, upto) if math.isfinite(values[at])]
    level = sum(values[at] for at in last) / max(len(last), 1)
    without = sum((values[at] - level) ** 2 for at in last)
    left = sum((values[at] - level - before[phase(at)]) ** 2 for at in last)
    return learn(upto), 1 - left / without if without > 0 else math.nan


class Told:
    """What every model says after the values before an origin, told one by one.

    `learnt` is how many of them the profiles may see: fewer in a back-test.
    """

    def __init__(self, past: Sequence[float], periods: Sequence[float], learnt: int) -> None:
        self.past, self.periods = list(past), list(periods)
        self.profiles: list[list[float]] = []
        mean = sum(past[:learnt]) / max(learnt, 1)
        for number, period in enumerate(periods):
            sums, counts = [0.0] * 144, [0] * 144
            if period >= 2:
                for at in range(learnt):
                    rest = past[at] - mean
                    if number == 1 and periods[0] >= 2:
                        rest -= self.profiles[0][self.bin(at, periods[0])]
                    sums[self.bin(at, period)] += rest
                    counts[self.bin(at, period)] += 1
            self.profiles.append([s / (c + 1) for s, c in zip(sums, counts, strict=True)])

    @staticmethod
    def bin(at: int, period: float) -> int:
        """Return the bin of a step in the profile of a period."""
        bins = min(144, max(1, int(period)))
        turn = at / period
        return min(bins - 1, int((turn - math.floor(turn)) * bins))

    def cycle(self, at: int) -> float:
        """Return the sum of both profiles at a step."""
        return sum(
            profile[self.bin(at, period)]
            for profile, period in zip(self.profiles, self.periods, strict=True)
            if period >= 2
        )

    def median(self, window: int, stride: int) -> float:
        """Return the lower median of every so-many-th of the last values."""
        some = sorted(self.past[::-1][:window][::stride])
        return some[(len(some) - 1) // 2]

    def smoothed(self, alpha: float) -> float:
        """Return the exponentially smoothed value."""
        level = self.past[0]
        for value in self.past:
            level += alpha * (value - level)
        return level

    def damped(self, ahead: int) -> float:
        """Return level and damped trend so many steps ahead."""
        level, trend = self.past[0], 0.0
        for value in self.past:
            expected = level + 0.98 * trend
            level = expected + 0.1 * (value - expected)
            trend = 0.98 * trend + 0.005 * (value - expected)
        return level + trend * sum(0.98**step for step in range(1, ahead + 1))

    def cycles(self, ahead: int, most: int) -> float:
        """Return the median of the same phase of earlier cycles, or NaN."""
        found: list[float] = []
        number = 1
        while len(found) < most:
            at = len(self.past) + ahead - 1 - int(number * self.periods[0] + 0.5)
            number += 1
            if at < 0:
                break
            if at < len(self.past):
                found.append(self.past[at])
        found.sort()
        if not found:
            return math.nan
        return (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2

    def seasonal(self, ahead: int) -> float:
        """Return profiles and the level of the last values over them."""
        rests = [self.past[at] - self.cycle(at) for at in range(len(self.past))]
        short, long = rests[-12:], rests[-144:]
        fade = math.exp(-ahead / 36)
        level = fade * sum(short) / len(short) + (1 - fade) * sum(long) / len(long)
        return level + self.cycle(len(self.past) + ahead - 1)

    def say(self, model: int, ahead: int) -> float:
        """Return what a model says so many steps ahead."""
        windows = ((1, 1), (6, 1), (24, 1), (144, 2), (864, 8))
        if model < 5:
            return self.median(*windows[model])
        if model in (5, 6):
            return self.smoothed((0.05, 0.3)[model - 5])
        if model == 7:
            return self.damped(ahead)
        if model in (8, 9):
            return self.cycles(ahead, 1 if model == 8 else 7)
        if model == 10:
            return self.seasonal(ahead)
        return (self.cycles(ahead, 7) + self.median(*windows[model - 9])) / 2
