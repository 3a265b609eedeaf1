"""Huawei-East-1: reading the trace and its episodes, request shapes, and the trimmed mean.

File reading and plain NumPy only; the protocol itself is in `huawei`.
"""

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SPLIT_ABOVE_GB = 10
CPU, MEMORY, ARRIVAL, LIFETIME = 0, 1, 2, 3
SHAPE_CPU, SHAPE_MEMORY, SHAPE_SPLIT, SHAPE_WEIGHT, SHAPE_FIRST = 0, 1, 2, 3, 4


@dataclass(frozen=True)
class Episodes:
    """Start indices and lengths, with the waits published for them where there are any."""

    starts: Ints
    lengths: Ints
    published: dict[str, Ints]


def load_vms(folder: Path) -> Ints:
    """Read the trace: one row per VM, columns CPU, MEMORY, ARRIVAL, LIFETIME."""
    with gzip.open(folder / "vms_000000-069999.csv.gz", "rt") as text:
        rows = np.loadtxt(text, delimiter=",", skiprows=1, dtype=np.int64)
    return np.ascontiguousarray(rows[:, 1:])


def load_episodes(folder: Path) -> Episodes:
    """Read the developer episodes and the three policies' waits computed for them."""
    with (folder / "episodes_n5.csv").open(newline="") as text:
        rows = list(csv.DictReader(text))

    def column(name: str) -> Ints:
        return np.array([int(row[name]) for row in rows], dtype=np.int64)

    published = {
        name: column("wait_s_" + name.replace(" ", "_"))
        for name in ("first fit", "balance fit", "best fit")
    }
    return Episodes(column("start_vmid"), column("n_vms"), published)


def shapes_of(vms: Ints, exponent: int = 1) -> Ints:
    """List the distinct shapes: demand per cell, split flag, cores**exponent, first arrival."""
    demand, first = np.unique(vms[:, :2], axis=0, return_index=True)
    split = demand[:, MEMORY] > SPLIT_ABOVE_GB
    per_cell = demand // np.where(split, 2, 1)[:, None]
    weight = demand[:, CPU] ** exponent
    return np.column_stack([per_cell, split, weight, first]).astype(np.int64)


def trimmed_mean(waits: Ints) -> float:
    """Return the mean without the lowest and the highest tenth."""
    cut = len(waits) // 10
    return float(np.sort(waits)[cut : len(waits) - cut].mean())
