"""Classes of workloads (signatures), advice on sizes, and VMs that nobody seems to need.

The model is a small network of one hidden layer, trained by `benchmarks/analysis/train.py` and
shipped as numbers in `class_weights.py`. Advice is arithmetic on quantiles, with the risk said.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from roost.analysis import class_weights as trained
from roost.analysis.features import features
from roost.analysis.grid import Floats

LEAST_POINTS = 288


class WorkloadClass(StrEnum):
    """What kind of work a VM does, as far as its use of cpu tells."""

    DIURNAL = "diurnal_service"
    BATCH = "batch"
    IDLE = "idle"
    STEADY = "steady_database"
    GROWING = "growing"
    SPIKY = "spiky"


ORDER = tuple(WorkloadClass)


@dataclass(frozen=True, slots=True)
class Classified:
    """The class of a series with its probability; None when the series is too short to tell."""

    kind: WorkloadClass | None
    probability: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """Advice on the size of one resource of a VM, in the resource's unit.

    `risk` is the share of time in which the past would have exceeded the advised size, `saving` is
    what is given back (below 0: what is needed more). `enough` is False when too little was seen.
    """

    advised: float
    saving: float
    risk: float
    enough: bool


@dataclass(frozen=True, slots=True)
class ZombieEvidence:
    """Why a VM looks abandoned: all of it must hold, and the numbers are there to be doubted."""

    zombie: bool
    days_seen: float
    cpu_p99_share: float
    network_p99_bytes: float
    cycle_found: bool


def probabilities(values: Floats, capacity: Floats, day_steps: int) -> Floats:
    """Return the probability of each class of `ORDER`, [series, class]."""
    told = features(values, capacity, day_steps)
    scaled = (told - np.array(trained.MEAN)) / np.array(trained.SCALE)
    hidden = np.tanh(
        np.clip(scaled, -8, 8) @ np.array(trained.HIDDEN) + np.array(trained.HIDDEN_BIAS)
    )
    score = hidden @ np.array(trained.OUT) + np.array(trained.OUT_BIAS)
    score = np.exp(score - score.max(axis=1, keepdims=True))
    return np.asarray(score / score.sum(axis=1, keepdims=True))


def classify(values: Floats, capacity: Floats, day_steps: int) -> list[Classified]:
    """Tell the class of every series of a batch; one with less than a day of values has none."""
    chances = probabilities(values, capacity, day_steps)
    known = np.isfinite(values).sum(axis=1)
    best = chances.argmax(axis=1)
    return [
        Classified(ORDER[best[row]], float(chances[row, best[row]]))
        if known[row] >= min(LEAST_POINTS, day_steps)
        else Classified(None, 0.0)
        for row in range(len(values))
    ]


def sizing(
    values: Floats, capacity: float, *, quantile: float = 0.99, headroom: float = 0.2
) -> Sizing:
    """Advise a size: the quantile of use and some headroom; never on fewer values than a day's."""
    known = values[np.isfinite(values)]
    if len(known) < LEAST_POINTS:
        return Sizing(capacity, 0.0, float("nan"), enough=False)
    advised = float(np.quantile(known, quantile)) * (1.0 + headroom)
    if np.mean(known >= 0.98 * capacity) > 1.0 - quantile:
        # Use at the ceiling says nothing about how much would be used without one.
        advised = max(advised, 1.5 * capacity)
    return Sizing(advised, capacity - advised, float(np.mean(known > advised)), enough=True)


def zombie(
    cpu: Floats, network_bytes_s: Floats, capacity: float, step_s: int, *, days: float = 7.0
) -> ZombieEvidence:
    """Gather the evidence that nobody needs a VM: days without work, traffic or rhythm."""
    from roost.analysis.periods import find_periods

    seen_cpu, seen_network = cpu[np.isfinite(cpu)], network_bytes_s[np.isfinite(network_bytes_s)]
    seen_days = min(len(seen_cpu), len(seen_network)) * step_s / 86_400
    cpu_share = float(np.quantile(seen_cpu, 0.99)) / max(capacity, 1e-12) if len(seen_cpu) else 1.0
    traffic = float(np.quantile(seen_network, 0.99)) if len(seen_network) else float("inf")
    cycle = bool(find_periods(cpu[None]).steps[0, 0] > 0) if len(cpu) else False
    quiet = cpu_share < 0.03 and traffic < 2_048 and not cycle
    # Steps that were missed here and there must not hide a VM for ever.
    return ZombieEvidence(seen_days >= 0.9 * days and quiet, seen_days, cpu_share, traffic, cycle)
