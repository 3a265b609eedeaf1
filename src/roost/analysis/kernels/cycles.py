"""Cycles out of lines: which lines are periods of their own, and which are a cycle's overtones."""

import numpy as np

from roost.analysis.grid import Floats, Ints
from roost.analysis.kernels.compiling import entry_point, kernel


@kernel
def is_overtone(line: int, base: int, lines: Floats, row: int, points: int) -> bool:
    """Tell whether a line belongs to a cycle that is not a sine.

    `lines` holds cycles in the window and power. A line at a multiple is an overtone unless it
    towers over the overtones beside it, as an independent cycle does (a day in a week).
    """
    cycles, at = lines[row, base, 0], lines[row, line, 0]
    power, own = lines[row, base, 1], lines[row, line, 1]
    multiple = np.floor(at / cycles + 0.5)
    weak = own < 0.16 * power
    # The error of the base grows with the multiple; a weak line needs less proof.
    slack = min(1.0, 0.25 + 0.08 * multiple) if weak else min(0.5, 0.2 + 0.06 * multiple)
    if multiple >= 2.0 and abs(at - multiple * cycles) <= slack:
        if own < (0.42 if multiple == 2.0 else 0.25) * power:
            return True
        beside = 0.0
        for other in range(lines.shape[1]):
            where = lines[row, other, 0]
            if where <= 0.0:
                break
            below = abs(where - (multiple - 1.0) * cycles) <= slack + 0.1 and multiple > 2.0
            above = abs(where - (multiple + 1.0) * cycles) <= slack + 0.1
            if below or above:
                beside = max(beside, lines[row, other, 1])
        return own < (6.0 if multiple == 2.0 else 4.0) * beside
    # Overtones faster than half the sampling come back as slower ones.
    if weak:
        for number in range(3, 20):
            folded = number * cycles - points * np.floor(number * cycles / points + 0.5)
            if number * cycles > 0.5 * points and abs(abs(folded) - at) <= 0.6:
                return True
    return False


@entry_point
def fundamentals(
    lines: Floats, points: int, least_ratio: float, least_share: float, kept: Ints, order: Ints
) -> int:
    """Fill `kept` [series, cycle] with the numbers of lines that are periods, or -1.

    `lines` [series, line, 3] has cycles in the window, power and ratio, the strongest line first.
    A line must reach `least_ratio` times the background and `least_share` of the strongest power.
    """
    for row in range(lines.shape[0]):
        count = 0
        for cycle in range(kept.shape[1]):
            kept[row, cycle] = -1
        for line in range(lines.shape[1]):
            if lines[row, line, 0] <= 0.0:
                break
            if lines[row, line, 2] < least_ratio:
                continue
            if lines[row, line, 1] < least_share * lines[row, 0, 1]:
                continue
            place = count
            while place > 0 and lines[row, order[place - 1], 0] > lines[row, line, 0]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = line
            count += 1
        cycles = 0
        for at in range(count):
            line = order[at]
            known = False
            for cycle in range(cycles):
                if is_overtone(line, kept[row, cycle], lines, row, points):
                    known = True
                    break
            if not known and cycles < kept.shape[1]:
                kept[row, cycles] = line
                cycles += 1
    return 0
