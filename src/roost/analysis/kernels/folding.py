"""Series folded by a period: the profile of a cycle, and whether the last one still followed it."""

import numpy as np

from roost.analysis.grid import Floats, Ints
from roost.analysis.kernels.compiling import entry_point

#: Phases that a cycle is divided into.
PHASES = 48


@entry_point
def fold(
    values: Floats,
    rows: Ints,
    periods: Floats,
    upto: Ints,
    profile: Floats,
    counts: Floats,
    skill: Floats,
) -> int:
    """Fill `profile` [pattern, PHASES] with means by phase, and `skill` [pattern].

    A pattern is a row of `values` and a period. The skill is that of a profile that was learnt
    without the cycle before `upto` for that cycle: 1 less its squared error over that of the
    level alone; 1 is exact, 0 is no help. NaN where a cycle has no value or does not vary.
    """
    for number in range(len(rows)):
        row, period = rows[number], periods[number]
        cut = max(0, upto[number] - int(period + 0.5))
        for part in range(2):
            until = cut if part == 0 else upto[number]
            mean, known = 0.0, 0
            for at in range(until):
                if np.isfinite(values[row, at]):
                    mean += values[row, at]
                    known += 1
            mean /= max(known, 1)
            for phase in range(PHASES):
                profile[number, phase] = 0.0
                counts[phase] = 0.0
            for at in range(until):
                if np.isfinite(values[row, at]):
                    turn = at / period
                    phase = min(PHASES - 1, int((turn - np.floor(turn)) * PHASES))
                    profile[number, phase] += values[row, at] - mean
                    counts[phase] += 1.0
            for phase in range(PHASES):
                if counts[phase] > 0.0:
                    profile[number, phase] /= counts[phase]
            if part == 0:
                here, held = 0.0, 0
                for at in range(cut, upto[number]):
                    if np.isfinite(values[row, at]):
                        here += values[row, at]
                        held += 1
                here /= max(held, 1)
                without, left = 0.0, 0.0
                for at in range(cut, upto[number]):
                    if np.isfinite(values[row, at]):
                        turn = at / period
                        phase = min(PHASES - 1, int((turn - np.floor(turn)) * PHASES))
                        rest = values[row, at] - here
                        without += rest * rest
                        left += (rest - profile[number, phase]) * (rest - profile[number, phase])
                skill[number] = 1.0 - left / without if without > 0.0 else np.nan
    return 0
