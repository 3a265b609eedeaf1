"""Remaining lifetime of VMs, from counts of how VMs like them ended.

Events end, so the history is kept as counts by class and age: how many VMs came to an age, and how
many ended in it. From those the distribution of what is left follows for any age, and changes as a
VM grows older: one that has lived a day is no longer one of the many that live ten minutes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from roost.analysis.grid import Floats, Ints
from roost.base.errors import InvalidRequest

#: Ages in seconds at which bins begin: finer while young, half again as wide each up to two years.
AGES_S: Ints = np.unique(
    np.concatenate([[0], (60.0 * 1.5 ** np.arange(35)).astype(np.int64)])
).astype(np.int64)
#: So many VMs of the whole fleet weigh as much as the class's own.
_PRIOR_VMS = 5.0


@dataclass(slots=True)
class LifetimeCounts:
    """Counts by class: VMs that reached each age bin while seen, and that ended in it."""

    reached: dict[str, Floats] = field(default_factory=dict)
    ended: dict[str, Floats] = field(default_factory=dict)

    def add(
        self, kind: str, lifetimes_s: Iterable[int], *, censored: bool = False, entered_s: int = 0
    ) -> None:
        """Count VMs of a class that lived so long; `censored` ones live on and were seen no longer.

        `entered_s` is the age at which the VMs came into sight, if not at their birth: what they
        survived unseen is no evidence.
        """
        lived = np.asarray(list(lifetimes_s), dtype=np.int64)
        if len(lived) and (lived.min() < 0 or entered_s < 0):
            raise InvalidRequest(f"a lifetime is {lived.min()} s, it must be at least 0")
        reached = self.reached.setdefault(kind, np.zeros(len(AGES_S)))
        ended = self.ended.setdefault(kind, np.zeros(len(AGES_S)))
        last = np.searchsorted(AGES_S, lived, side="right") - 1
        first = int(np.searchsorted(AGES_S, entered_s, side="left"))
        held = np.bincount(last, minlength=len(AGES_S)).astype(np.float64)
        # One that is cut off within a bin has not survived the bin, and is left out of it.
        upto = held if not censored else np.append(held[1:], 0.0)
        alive = np.cumsum(upto[::-1])[::-1]
        alive[:first] = 0.0
        reached += alive
        if not censored:
            held[:first] = 0.0
            ended += held

    def merged(self, other: "LifetimeCounts") -> "LifetimeCounts":
        """Return the counts of both."""
        both = LifetimeCounts()
        for counts in (self, other):
            for kind in counts.reached:
                for mine, theirs in ((both.reached, counts.reached), (both.ended, counts.ended)):
                    mine[kind] = mine.get(kind, np.zeros(len(AGES_S))) + theirs[kind]
        return both

    def hazard(self, kind: str) -> Floats:
        """Return the chance to end in each age bin for who has reached it.

        A class with few VMs leans on the whole fleet; an age that nobody has reached has the hazard
        of the last one that somebody has.
        """
        reached = sum(self.reached.values(), np.zeros(len(AGES_S)))
        ended = sum(self.ended.values(), np.zeros(len(AGES_S)))
        fleet = _carried(ended, reached)
        own = self.reached.get(kind)
        if own is None:
            return fleet
        return (self.ended[kind] + _PRIOR_VMS * fleet) / (own + _PRIOR_VMS)

    def remaining(self, kind: str, age_s: int) -> "Remaining":
        """Return the distribution of what is left of a VM's life at an age."""
        if age_s < 0:
            raise InvalidRequest(f"age_s is {age_s}, it must be at least 0", age_s=age_s)
        hazard = self.hazard(kind)
        first = int(np.searchsorted(AGES_S, age_s, side="right")) - 1
        ends = np.append(AGES_S[1:], 2 * AGES_S[-1]).astype(np.float64)
        # What is left of the bin that the VM is in has its part of the bin's hazard.
        inside = (
            (ends[first] - age_s) / (ends[first] - AGES_S[first]) if age_s < ends[first] else 0.0
        )
        stays: Floats = np.clip(1.0 - hazard[first:], 1e-12, 1.0).astype(np.float64)
        stays[0] = stays[0] ** max(inside, 0.0)
        left = np.maximum(ends[first:] - age_s, 0.0)
        seen = self.reached.get(kind, np.zeros(len(AGES_S)))
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


def _carried(ended: Floats, reached: Floats) -> Floats:
    """Return the hazard of each bin; beyond what was seen that of the last bin that was."""
    hazard: Floats = np.full(len(ended), np.nan)
    np.divide(ended, reached, out=hazard, where=reached > 0)
    last = 0.0
    for at in range(len(hazard)):
        last = hazard[at] if np.isfinite(hazard[at]) else last
        hazard[at] = last
    return hazard
