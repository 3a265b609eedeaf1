"""A day of PlanetLab VMs on 800 hosts: who asked for what, who used what, and what a run has cost.

The setting and the figures are those of Beloglazov and Buyya (2012) as the authors' own code has
them: 300 s a step; a host draws power by its load and none without; a VM loses a tenth of its cpu
while it migrates. What their code gave on the same files is read beside the traces.
"""

import csv
import gzip
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.analysis.synthetic import Floats

Ints = NDArray[np.int64]

DAYS = ("20110303", "20110322")
RIVAL = "LR-MMT-1.2"
STEP_S = 300
HOSTS = 800
#: By type: what each of the two cores of a host does, and its memory.
CORE_MIPS = (1860, 2660)
CORES, HOST_MEMORY_MB = 2, 4096
#: By type, every quarter of the VMs: what a VM asks for.
VM_MIPS: Ints = np.array([2500, 2000, 1000, 500], np.int64)
VM_MEMORY_MB: Ints = np.array([870, 1740, 1740, 613], np.int64)
#: Half of a network of 1 Gbit/s moves memory.
MOVED_MB_PER_S = 62.5
LOST_WHILE_MOVING = 0.1
#: Watts at loads of 0, 10, ... 100%, by type of host.
WATTS = np.array(
    [
        [86, 89.4, 92.6, 96, 99.5, 102, 106, 108, 112, 114, 117],
        [93.7, 97, 101, 105, 110, 116, 121, 125, 129, 133, 135],
    ]
)


@dataclass(frozen=True, slots=True)
class Day:
    """VMs in the order of their index: what each asked for, and used by step, in MIPS."""

    name: str
    asked: Ints
    memory_mb: Ints
    used: Floats  # [steps, VMs]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a day has cost. ESV is energy x SLATAH x PDM, all as fractions."""

    energy_kwh: float
    migrations: int
    slatah: float
    pdm: float

    @property
    def esv(self) -> float:
        """Return energy by violations of what was promised."""
        return self.energy_kwh * self.slatah * self.pdm


def read_day(data: Path, name: str) -> Day:
    """Read one day's traces."""
    with gzip.open(data / "planetlab" / f"{name}.csv.gz", "rt") as text:
        percent = np.loadtxt(text, delimiter=",", skiprows=1)
    count = percent.shape[1]
    kind = np.arange(count) // -(-count // len(VM_MIPS))
    asked = VM_MIPS[kind]
    return Day(name, asked, VM_MEMORY_MB[kind], percent / 100 * asked)


def read_rival(data: Path, name: str) -> Cost:
    """Read what the authors' code gave on that day."""
    with (data / "planetlab" / "cloudsim_reference.csv").open() as text:
        [row] = [
            row for row in csv.DictReader(text) if (row["day"], row["policy"]) == (name, RIVAL)
        ]
    shares = [float(row[key]) / 100 for key in ("slatah_pct", "pdm_pct")]
    return Cost(float(row["energy_kwh"]), int(row["migrations"]), shares[0], shares[1])


def host_type(number: int) -> int:
    """Return the type of a host; they alternate."""
    return number % len(CORE_MIPS)


def host_mips(number: int) -> int:
    """Return what a host can do."""
    return CORES * CORE_MIPS[host_type(number)]


@dataclass
class Tally:
    """Counts what a day costs, step by step."""

    day: Day
    energy_ws: float = 0.0
    migrations: int = 0
    _overloaded_s: float = 0.0
    _active_s: float = 0.0
    _lost: float = 0.0
    _mips: Floats = field(default_factory=lambda: np.array([host_mips(n) for n in range(HOSTS)]))

    def moved(self, vms: Ints, step: int) -> None:
        """Count VMs that began to migrate at a step, and the cpu that they lose by it."""
        self.migrations += len(vms)
        took_s = self.day.memory_mb[vms] / MOVED_MB_PER_S
        self._lost += float((LOST_WHILE_MOVING * self.day.used[step, vms] * took_s).sum())

    def stepped(self, host_of: Ints, step: int) -> None:
        """Count one step with the VMs on these hosts."""
        used = self.day.used
        now, then = (
            np.bincount(host_of, weights=used[min(at, len(used) - 1)], minlength=HOSTS)
            for at in (step, step + 1)
        )
        watts = (self._watts(now / self._mips) + self._watts(then / self._mips)) / 2
        active = now > 0
        self.energy_ws += STEP_S * float(watts[active].sum())
        self._active_s += STEP_S * int(np.count_nonzero(active))
        self._overloaded_s += STEP_S * int(np.count_nonzero(now > self._mips))

    @staticmethod
    def _watts(load: Floats) -> Floats:
        at = np.linspace(0.0, 1.0, WATTS.shape[1])
        drawn = np.empty(HOSTS)
        for kind, watts in enumerate(WATTS):
            drawn[kind :: len(WATTS)] = np.interp(load[kind :: len(WATTS)], at, watts)
        return drawn

    def cost(self) -> Cost:
        """Return what the day has cost."""
        requested = float(self.day.used.sum()) * STEP_S
        return Cost(
            self.energy_ws / 3.6e6,
            self.migrations,
            self._overloaded_s / self._active_s,
            self._lost / requested,
        )
