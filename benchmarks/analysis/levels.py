"""Rows on safe levels: how often hosts of real VMs are short on days that were not learnt from.

Hosts are random sets of Bitbrains VMs, all of one size. A level is made of the week before a day;
on that day the host has promised its cpu so many times to such VMs, and every step of five minutes
in which they want more than it has counts.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.analysis.bitbrains import DAY, FILES, KNOWN, read_table
from benchmarks.analysis.sizes import Sizes
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.analysis.outlook import POINTS
from roost.analysis.oversubscription import safe_levels

BOUNDS = (0.01, 0.05)
_VMS, _HOSTS = 12, 60
_NAME = "overload on unseen days"


def rows_of(data: Path, sizes: Sizes) -> Iterator[Result]:
    """Measure each bound."""
    if not (data / "bitbrains-rnd").is_dir():
        why = f"no bitbrains-rnd under {data}. Maybe set DATA to the folder of public data."
        yield from (skipped(f"{_NAME}, bound {bound}", "of steps", why) for bound in BOUNDS)
        return
    shares = np.clip(read_table(data / "bitbrains-rnd" / FILES[0]).T / 100.0, 0.0, 1.0)
    rng = np.random.default_rng(16)
    hosts = np.stack(
        [
            np.nanmean(shares[rng.choice(len(shares), _VMS, replace=False)], axis=0)
            for _ in range(_HOSTS)
        ]
    )
    for bound in BOUNDS:
        over, levels = [], []
        for begin in range(KNOWN, hosts.shape[1] - DAY + 1, DAY):
            for row, level in enumerate(safe_levels(hosts[:, begin - POINTS : begin], bound)):
                if level is not None:
                    unseen = hosts[row, begin : begin + DAY]
                    over.append(float(np.mean(unseen[np.isfinite(unseen)] * level.level > 1.0)))
                    levels.append(level.level)
        note = f"{_HOSTS} hosts of {_VMS} VMs, {len(over)} days; level {np.mean(levels):.1f}"
        note += f" on average, the worst day short {max(over):.1%}"
        yield at_most(
            f"{_NAME}, bound {bound}", float(np.mean(over)), "of steps", sizes.goal(bound),
            note=note,
        )  # fmt: skip


def jobs(data: Path, sizes: Sizes) -> list[Job]:
    """Return the one job of this topic."""
    return [Job(_NAME, lambda: rows_of(data, sizes))]
