"""Features of a series: the few numbers from which its class is told.

They do not depend on the length of a step or the unit of a value, as far as can be: amounts are
parts of `capacity`, the most that the VM could use.
"""

import numpy as np

from roost.analysis.grid import Floats, filled
from roost.analysis.periods import find_periods

NAMES = (
    "level", "median", "peak", "variation", "idle_share", "high_share", "burst", "growth",
    "growth_steadiness", "cycle_share", "cycle_days", "memory", "night", "jumps",
)  # fmt: skip


def features(values: Floats, capacity: Floats, day_steps: int) -> Floats:
    """Return [series, feature] for a batch; a series without values is all zero."""
    series, points = values.shape
    out = np.zeros((series, len(NAMES)))
    if points < 4:
        return out
    part = filled(values) / np.maximum(capacity, 1e-12)[:, None]
    mean, deviation = part.mean(axis=1), part.std(axis=1)
    low, middle, peak = np.quantile(part, (0.05, 0.5, 0.995), axis=1)
    reach = np.maximum(peak - low, 1e-6)
    found = find_periods(values)
    blocks = part[:, points % 12 :].reshape(series, 12, -1).mean(axis=2)
    steps = np.diff(blocks, axis=1)
    moved = np.abs(np.diff(part, axis=1))
    rest = part - mean[:, None]
    along = (rest[:, 1:] * rest[:, :-1]).sum(axis=1)
    columns = (
        mean,
        middle,
        peak,
        np.log1p(deviation / np.maximum(mean, 1e-3)),
        (part < 0.03).mean(axis=1),
        (part > (low + 0.5 * reach)[:, None]).mean(axis=1),
        np.log1p((peak - middle) / np.maximum(middle, 1e-2)),
        (blocks[:, -1] - blocks[:, 0]) / np.maximum(mean, 1e-3),
        (steps > 0).mean(axis=1),
        found.share.sum(axis=1),
        np.where(found.steps[:, 0] > 0, np.log2(found.steps[:, 0] / day_steps + 0.03), 0.0),
        along / np.maximum((rest * rest).sum(axis=1), 1e-12),
        (middle - low) / reach,
        (moved > 0.3 * reach[:, None]).mean(axis=1),
    )
    out[:] = np.clip(np.stack(columns, axis=1), -20.0, 20.0)
    out[~np.isfinite(values).any(axis=1)] = 0.0
    return out
