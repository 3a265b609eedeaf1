"""How much may be promised of a host's cpu, so that it is seldom short: from its VMs together.

What VMs use of what they asked for is foreseen for all of a host's VMs as one series, so that
peaks which come at different hours share the room. A level is how many times a host's cpu may be
promised to VMs like those that are there, while each step of five minutes is short with a chance
of at most `bound`. `make bench-analysis` judges levels on days that were not learnt from.
"""

from dataclasses import dataclass

import numpy as np

from roost.analysis.forecasting import forecast_batch
from roost.analysis.grid import Floats
from roost.base.errors import InvalidRequest

#: A day of five minutes is learnt from at least, and foreseen.
DAY_STEPS = 288
#: Levels beyond these say more about idle VMs than about room.
LEAST_LEVEL, MOST_LEVEL = 0.25, 8.0
#: What is kept free beyond the bound: a level is for VMs to come, which are not the same.
MARGIN = 0.15
LEAST_BOUND, MOST_BOUND = 0.001, 0.25


@dataclass(frozen=True, slots=True)
class Level:
    """How often a host's cpu may be promised, and the share of promises that is then used.

    `used` is passed with a chance of at most `bound` in any step of the coming day.
    """

    level: float
    used: float
    bound: float


def safe_levels(shares: Floats, bound: float) -> list[Level | None]:
    """Return the level of each host; None where less than a day is known, or too little to bound.

    `shares` is float64 [host, step] up to now: what its VMs used together, over what they asked
    for; NaN where nothing was read.
    """
    if not LEAST_BOUND <= bound <= MOST_BOUND:
        raise InvalidRequest(
            f"an overload bound of {bound} is not within {LEAST_BOUND} and {MOST_BOUND}",
            bound=bound,
        )
    known = np.isfinite(shares)
    enough = known.sum(axis=1) >= DAY_STEPS
    found: list[Level | None] = [None] * len(shares)
    rows = np.flatnonzero(enough)
    if not len(rows):
        return found
    some = np.ascontiguousarray(shares[rows], dtype=np.float64)
    ahead = forecast_batch(some, DAY_STEPS, day_steps=DAY_STEPS, coverage=1.0 - 2.0 * bound)
    # The bound is of a step, so it is the quantile over the coming day of what each step may be;
    # never less than what the past had, which a forecast that trusts its last days could forget.
    bounded = np.isfinite(ahead.high).all(axis=1)
    foreseen = np.full(len(some), np.inf)
    foreseen[bounded] = np.quantile(ahead.high[bounded], 1.0 - bound, axis=1)
    past = np.nanquantile(some, 1.0 - bound, axis=1)
    for row, most in zip(rows.tolist(), np.maximum(foreseen, past).tolist(), strict=True):
        if np.isfinite(most):
            used = max(most * (1.0 + MARGIN), 1e-9)
            level = float(np.clip(1.0 / used, LEAST_LEVEL, MOST_LEVEL))
            found[row] = Level(level, float(most), bound)
    return found
