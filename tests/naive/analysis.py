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
