"""Series without level and trend, of variance 1: what a spectrum is taken of."""

import numpy as np

from roost.analysis.grid import Floats
from roost.analysis.kernels.compiling import entry_point


@entry_point
def flatten(
    values: Floats, window: Floats, flat: Floats, coarse: Floats, held: Floats, size: int
) -> int:
    """Fill `flat` with windowed residuals, and `coarse` and `held` with means of blocks of `size`.

    Gaps (NaN) are zero in `flat` and not counted in `held`. A series of which the trend leaves
    nothing but rounding is all zero.
    """
    points = values.shape[1]
    for row in range(values.shape[0]):
        count, largest = 0, 0.0
        for at in range(points):
            if np.isfinite(values[row, at]):
                count += 1
                largest = max(largest, abs(values[row, at]))
        for block in range(coarse.shape[1]):
            coarse[row, block] = 0.0
            held[row, block] = 0.0
        scale = 1.0 / largest if largest > 1e-300 else 0.0
        mean, middle = 0.0, 0.0
        for at in range(points):
            if np.isfinite(values[row, at]):
                mean += values[row, at] * scale
                middle += at
        mean /= max(count, 1)
        middle /= max(count, 1)
        along, across, total = 0.0, 0.0, 0.0
        for at in range(points):
            if np.isfinite(values[row, at]):
                value = values[row, at] * scale - mean
                along += (at - middle) * (at - middle)
                across += (at - middle) * value
                total += value * value
        slope = across / along if along > 0.0 else 0.0
        spread = np.sqrt(max(total - slope * across, 0.0) / max(count, 1))
        unit = 1.0 / spread if spread > 1e-7 else 0.0
        for at in range(points):
            flat[row, at] = 0.0
            if np.isfinite(values[row, at]):
                value = (values[row, at] * scale - mean - slope * (at - middle)) * unit
                flat[row, at] = value * window[at]
                coarse[row, at // size] += value
                held[row, at // size] += 1.0
        for block in range(coarse.shape[1]):
            if held[row, block] > 0.0:
                coarse[row, block] /= held[row, block]
    return 0
