"""Series of the store on the grid of the analysis: a week of five-minute means up to a moment.

Only steps that have ended by then are read, whatever a host's clock says: nothing is learnt from
what is still to come.
"""

import numpy as np

from roost.analysis.grid import Floats
from roost.analysis.outlook import POINTS, STEP_S, Use
from roost.analysis.store import SeriesReader
from roost.model.series import Columns, Resolution, Subject

STEP_MS = 1000 * STEP_S
_CPU, _MEMORY = "cpu_milli.mean", "memory_bytes.mean"


def origin_of(now_ms: int) -> int:
    """Return the end of the last step that has ended, in milliseconds."""
    return now_ms - now_ms % STEP_MS


async def gather(reader: SeriesReader, subject: Subject, origin_ms: int) -> Use:
    """Return what a VM or host used in the week before a moment."""
    first_ms = origin_ms - POINTS * STEP_MS
    found = await reader.read(
        subject, first_ms, origin_ms, Resolution.FIVE_MINUTES, (_CPU, _MEMORY)
    )
    return Use(on_grid(found, _CPU, first_ms), on_grid(found, _MEMORY, first_ms))


def on_grid(
    found: Columns, figure: str, first_ms: int, points: int = POINTS, step_ms: int = STEP_MS
) -> Floats:
    """Return a figure's values by step; NaN where there is none, or none that makes sense."""
    grid = np.full(points, np.nan)
    values = found.figures.get(figure)
    if values is not None:
        at = (found.at_ms - first_ms) // step_ms
        good = (at >= 0) & (at < points) & np.isfinite(values) & (values >= 0)
        grid[at[good]] = values[good]
    return grid
