"""Lines in a spectrum: the background under them, and the peaks that stand out of it."""

import numpy as np

from roost.analysis.grid import Floats, Ints
from roost.analysis.kernels.compiling import entry_point, kernel

#: Peaks that one series may have.
MOST_LINES = 24


@kernel
def smallest(values: Floats, count: int, rank: int) -> float:
    """Return the value of a rank (0 is the least) and leave the values partly ordered."""
    low, high = 0, count - 1
    # Values are swapped whether they must be or not: a branch here is a toss that processors lose.
    while low < high:
        one, pivot, other = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(one, pivot), min(max(one, pivot), other))
        less = low
        for at in range(low, high + 1):
            held = values[at]
            values[at] = values[less]
            values[less] = held
            less += held < pivot
        if rank < less:
            high = less - 1
            continue
        equal = less
        for at in range(less, high + 1):
            held = values[at]
            values[at] = values[equal]
            values[equal] = held
            equal += held <= pivot
        if rank < equal:
            return pivot
        low = equal
    return values[rank]


@kernel
def level_under(
    power: Floats,
    row: int,
    edges: Ints,
    share: float,
    lines: Floats,
    reach: float,
    scratch: Floats,
    background: Floats,
) -> int:
    """Fill `background` with the quantile of each band's powers, without those near known lines.

    A band that lines cover nearly whole takes the level of the next one. Of a wide band a sample
    of 128 to 255 bins is enough.
    """
    bands = len(edges) - 1
    for back in range(bands):
        band = bands - 1 - back
        count, looked = 0, 0
        for at in range(
            edges[band], edges[band + 1], max(1, (edges[band + 1] - edges[band]) // 128)
        ):
            looked += 1
            free = True
            for line in range(lines.shape[1]):
                if lines[row, line, 0] <= 0.0:
                    break
                if abs(lines[row, line, 0] - at) <= reach:
                    free = False
                    break
            if free:
                scratch[count] = power[row, at]
                count += 1
        if 4 * count >= looked and count > 0:
            background[band] = smallest(scratch, count, int(share * (count - 1)))
        elif band < bands - 1:
            background[band] = background[band + 1]
        else:
            background[band] = 0.0
    return 0


@kernel
def floor_at(at: int, edges: Ints, background: Floats) -> float:
    """Return the background at a bin, interpolated between the middles of bands."""
    bands = len(edges) - 1
    band = 0
    while band < bands - 1 and at >= edges[band + 1]:
        band += 1
    middle = 0.5 * (edges[band] + edges[band + 1])
    other = band - 1 if at < middle else band + 1
    floor = background[band]
    if 0 <= other < bands:
        far = 0.5 * (edges[other] + edges[other + 1])
        floor += (at - middle) / (far - middle) * (background[other] - floor)
    return floor


@entry_point
def find_lines(
    power: Floats,
    edges: Ints,
    share: float,
    ratios: Floats,
    reach: float,
    scratch: Floats,
    background: Floats,
    found: Floats,
) -> int:
    """Fill `found` [series, line, 3] with position, power and ratio of each peak, strongest first.

    The background is the quantile `share` of the powers of a band between two `edges`. A peak is a
    local maximum of at least `ratios[0]` times that. Ratios are then taken again over a background
    without what lies within `reach` bins of a peak, and those below `ratios[1]` are dropped.
    Unused lines have position 0.
    """
    width = power.shape[1]
    for row in range(power.shape[0]):
        for line in range(found.shape[1]):
            for part in range(3):
                found[row, line, part] = 0.0
        level_under(power, row, edges, share, found, reach, scratch, background)
        lines = 0
        for at in range(edges[0] + 1, width - 1):
            here = power[row, at]
            if here <= power[row, at - 1] or here < power[row, at + 1] or here <= 0.0:
                continue
            if here < ratios[0] * floor_at(at, edges, background):
                continue
            place = lines
            if lines == found.shape[1]:
                place = lines - 1
                if found[row, place, 1] >= here:
                    continue
            else:
                lines += 1
            while place > 0 and found[row, place - 1, 1] < here:
                for part in range(3):
                    found[row, place, part] = found[row, place - 1, part]
                place -= 1
            # A Hann window's peak is nearly a parabola in the logarithm.
            below = np.log(max(power[row, at - 1], 1e-30 * here))
            above = np.log(max(power[row, at + 1], 1e-30 * here))
            bend = below - 2.0 * np.log(here) + above
            shift = 0.0
            if bend < 0.0:
                shift = min(0.5, max(-0.5, 0.5 * (below - above) / bend))
            found[row, place, 0] = at + shift
            found[row, place, 1] = here
        if lines > 0:
            level_under(power, row, edges, share, found, reach, scratch, background)
        kept = 0
        for line in range(lines):
            floor = floor_at(int(found[row, line, 0] + 0.5), edges, background)
            ratio = found[row, line, 1] / max(floor, 1e-12 * found[row, line, 1])
            if ratio >= ratios[1]:
                found[row, kept, 0] = found[row, line, 0]
                found[row, kept, 1] = found[row, line, 1]
                found[row, kept, 2] = ratio
                kept += 1
        for line in range(kept, lines):
            for part in range(3):
                found[row, line, part] = 0.0
    return 0
