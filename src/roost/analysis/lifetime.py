"""Remaining lifetime of VMs, from counts of how VMs like them ended.

Events end, so the history is kept as counts by class and age: how many VMs came to an age, and how
many ended in it. From those the distribution of what is left follows for any age, and changes as a
VM grows older: one that has lived a day is no longer one of the many that live ten minutes.

A class is a path from coarse to fine (a shape, then the project that asks for it, then the image
that it boots). VMs count in every class along their path, and a class of which little was seen
leans on the coarser one before it, and that on the whole fleet.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from roost.analysis.grid import Floats, Ints
from roost.base.errors import InvalidRequest

#: Ages in seconds at which bins begin: finer while young, half again as wide each up to two years.
AGES_S: Ints = np.unique(
    np.concatenate([[0], (60.0 * 1.5 ** np.arange(35)).astype(np.int64)])
).astype(np.int64)
#: So many VMs of the coarser class weigh as much as the class's own.
_PRIOR_VMS = 5.0
#: Ended VMs of the fleet from which anything is foretold.
LEAST_ENDED = 20
#: An end is foretold where four of five such VMs differ by no more than this factor in what is
#: left of them: else it says less than that a host is nearly full.
NARROW = 16.0

#: Names from coarse to fine; the empty one is the whole fleet.
Path = tuple[str, ...]


@dataclass(slots=True)
class LifetimeCounts:
    """Counts by class: VMs that reached each age bin while seen, and that ended in it."""

    reached: dict[Path, Floats] = field(default_factory=dict)
    ended: dict[Path, Floats] = field(default_factory=dict)

    def add(
        self, path: Path, lifetimes_s: Iterable[int], *, censored: bool = False, entered_s: int = 0
    ) -> None:
        """Count VMs of a class that lived so long; `censored` ones live on and were seen no longer.

        `entered_s` is the age at which the VMs came into sight, if not at their birth: what they
        survived unseen is no evidence.
        """
        lived = np.asarray(list(lifetimes_s), dtype=np.int64)
        if len(lived) and (lived.min() < 0 or entered_s < 0):
            raise InvalidRequest(f"a lifetime is {lived.min()} s, it must be at least 0")
        last = np.searchsorted(AGES_S, lived, side="right") - 1
        first = int(np.searchsorted(AGES_S, entered_s, side="left"))
        held = np.bincount(last, minlength=len(AGES_S)).astype(np.float64)
        # One that is cut off within a bin has not survived the bin, and is left out of it.
        upto = held if not censored else np.append(held[1:], 0.0)
        alive = np.cumsum(upto[::-1])[::-1]
        alive[:first] = 0.0
        held[:first] = 0.0
        self._count(path, alive, np.zeros(len(AGES_S)) if censored else held)

    def add_ended(self, path: Path, age_bin: int, vms: float) -> None:
        """Count VMs, or parts of one that is long ago, that ended in an age bin."""
        if not 0 <= age_bin < len(AGES_S):
            raise InvalidRequest(f"there is no age bin {age_bin}", age_bin=age_bin)
        reached, ended = np.zeros(len(AGES_S)), np.zeros(len(AGES_S))
        reached[: age_bin + 1] = ended[age_bin] = vms
        self._count(path, reached, ended)

    def _count(self, path: Path, reached: Floats, ended: Floats) -> None:
        for length in range(len(path) + 1):
            for known, more in ((self.reached, reached), (self.ended, ended)):
                before = known.get(path[:length])
                known[path[:length]] = more.copy() if before is None else before + more

    def hazard(self, path: Path) -> Floats:
        """Return the chance to end in each age bin for who has reached it.

        An age that nobody of the fleet has reached has the hazard of the last one that somebody
        has.
        """
        if () not in self.reached:
            return np.zeros(len(AGES_S))
        hazard = _carried(self.ended[()], self.reached[()])
        for length in range(1, len(path) + 1):
            own = self.reached.get(path[:length])
            if own is None:
                break
            hazard = (self.ended[path[:length]] + _PRIOR_VMS * hazard) / (own + _PRIOR_VMS)
        return hazard

    def remaining(self, path: Path, age_s: int) -> "Remaining":
        """Return the distribution of what is left of a VM's life at an age."""
        if age_s < 0:
            raise InvalidRequest(f"age_s is {age_s}, it must be at least 0", age_s=age_s)
        hazard = self.hazard(path)
        first = int(np.searchsorted(AGES_S, age_s, side="right")) - 1
        ends = np.append(AGES_S[1:], 2 * AGES_S[-1]).astype(np.float64)
        # What is left of the bin that the VM is in has its part of the bin's hazard.
        inside = (
            (ends[first] - age_s) / (ends[first] - AGES_S[first]) if age_s < ends[first] else 0.0
        )
        stays: Floats = np.clip(1.0 - hazard[first:], 1e-12, 1.0).astype(np.float64)
        stays[0] = stays[0] ** max(inside, 0.0)
        left = np.maximum(ends[first:] - age_s, 0.0)
        seen = self.reached.get(path, np.zeros(len(AGES_S)))
        return Remaining(left, np.cumprod(stays).astype(np.float64), float(seen[first]))


@dataclass(frozen=True, slots=True)
class Remaining:
    """Chances that more than `left_s` seconds are left; `seen` VMs of the class got that old."""

    left_s: Floats
    survival: Floats
    seen: float

    def survives(self, seconds: float) -> float:
        """Return the chance to live on for so long."""
        return float(np.interp(seconds, np.append(0.0, self.left_s), np.append(1.0, self.survival)))

    def quantile_s(self, share: float) -> float:
        """Return the time after which this share of such VMs has ended; inf when most go on."""
        below = np.flatnonzero(self.survival <= 1.0 - share)
        if not len(below):
            return float("inf")
        at = int(below[0])
        before_s, before = (0.0, 1.0) if at == 0 else (self.left_s[at - 1], self.survival[at - 1])
        part = (before - (1.0 - share)) / max(before - self.survival[at], 1e-12)
        return float(before_s + part * (self.left_s[at] - before_s))

    @property
    def mean_s(self) -> float:
        """Return the mean of what is left, counted up to the last age known."""
        before = np.append(1.0, self.survival[:-1])
        widths = np.diff(np.append(0.0, self.left_s))
        return float(np.sum(0.5 * (before + self.survival) * widths))


class LifeTable:
    """What is left of VMs' lives by class and age, reckoned once for each and then looked up.

    The counts must not change any more. What is told is the median, where the distribution is
    narrow enough to be of use: VMs like those that end after minutes or after months are not told
    apart, whatever their mean is.
    """

    def __init__(self, counts: LifetimeCounts) -> None:
        self._counts = counts
        self._left: dict[tuple[Path, int], int | None] = {}
        told = [(path, counts.ended[path].tolist(), counts.reached[path].tolist())
                for path in sorted(counts.reached)]  # fmt: skip
        self.vms = round(float(counts.ended[()].sum())) if () in counts.ended else 0
        known = self.vms >= LEAST_ENDED
        self.digest = f"sha256:{sha256(repr(told).encode()).hexdigest()}" if known else ""

    def remaining(self, path: Path, age_s: int) -> Remaining | None:
        """Return what is left of a VM's life, by the finest class seen; None if little is known."""
        if not self.digest:
            return None
        while path and path not in self._counts.reached:
            path = path[:-1]
        return self._counts.remaining(path, max(age_s, 0))

    def left_s(self, path: Path, age_s: int) -> int | None:
        """Return the seconds that a VM of a class and age will still live; None if unknown."""
        if not self.digest:
            return None
        while path and path not in self._counts.reached:
            path = path[:-1]
        age_bin = int(np.searchsorted(AGES_S, max(age_s, 0), side="right")) - 1
        key = (path, age_bin)
        if key not in self._left:
            self._left[key] = _told(self._counts.remaining(path, int(AGES_S[age_bin])))
        return self._left[key]


def _told(left: Remaining) -> int | None:
    """Return the median of what is left, if that is known well enough."""
    early, half, late = (left.quantile_s(share) for share in (0.1, 0.5, 0.9))
    return int(half) if late <= NARROW * max(early, 60.0) else None


#: That of a fleet of which no VM has ended.
NO_LIVES = LifeTable(LifetimeCounts())


def _carried(ended: Floats, reached: Floats) -> Floats:
    """Return the hazard of each bin; beyond what was seen that of the last bin that was."""
    hazard: Floats = np.full(len(ended), np.nan)
    np.divide(ended, reached, out=hazard, where=reached > 0)
    last = 0.0
    for at in range(len(hazard)):
        last = hazard[at] if np.isfinite(hazard[at]) else last
        hazard[at] = last
    return hazard
