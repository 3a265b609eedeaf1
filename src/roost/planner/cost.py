"""What one move costs: rounds of pre-copy from memory, dirty rate and bandwidth.

A live move sends all memory, then what was written meanwhile, and so on until the rest can be sent
while the VM stands still. With a dirty rate of a share `r` of the bandwidth round n sends about
`memory * r**n`; it ends when a round fits into the longest stand-still. At `r` near 1 it never
does: then the VM is slowed down (auto-converge), switched over early (post-copy), or stays. Dirty
rates are samples: how sure the end is depends on how far `r` is from 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from roost.model.states import MoveMode

#: What is done about a VM that does not converge, and what becomes of a move by its prediction.
NotConverging = Literal["auto_converge", "post_copy", "refuse"]
Then = Literal["converges", "auto_converge", "post_copy", "refuse"]

#: Bandwidth of a path of which nothing is known: 1 Gbit/s, in bytes per second.
UNKNOWN_BANDWIDTH = 125_000_000
#: What a move takes before and after its bytes: the target's start, the switch, the clean-up.
FIXED_S = 1.0
#: The stand-still that a move aims for, and the switch itself.
MOST_STAND_STILL_S = 0.3
SWITCH_S = 0.03
#: Rounds after which QEMU would go on for ever without help.
MOST_ROUNDS = 30
#: Share of memory that a VM of unknown dirty rate is taken to write in a second.
UNKNOWN_DIRTY = 0.01
#: How much dirty rates differ from one sample to the next (a standard deviation, as a factor).
_SPREAD = 0.35
#: How much slower a VM is while it is sent, and how much while it is throttled.
_SLOWER, _THROTTLED = 0.05, 0.5
#: Bounds of what is learnt from moves that were made.
_LEAST_FACTOR, _MOST_FACTOR = 0.25, 4.0


class MemoryRead(NamedTuple):
    """What was last measured of a VM's memory; None where it was not."""

    dirty_bytes_per_s: float | None = None
    resident_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to send of one VM; a dirty rate of None was never measured.

    Pages that a guest never wrote to are zero, and of those only a mark is sent: `resident_bytes`
    are the others, all of the memory where that was never measured.
    """

    memory_bytes: int
    dirty_bytes_per_s: float | None = None
    disk_bytes: int = 0  # only of a cold move
    mode: MoveMode = "live"
    resident_bytes: int | None = None

    def as_read(self, read: MemoryRead) -> "Load":
        """Return the load with what was measured of the VM's memory."""
        return replace(self, **read._asdict())

    @property
    def writes(self) -> float:
        """Return the bytes that a VM writes in a second, as measured or as it is taken to."""
        dirty = self.dirty_bytes_per_s
        return UNKNOWN_DIRTY * self.memory_bytes if dirty is None else dirty

    @property
    def sent_first_bytes(self) -> int:
        """Return what the first round of a live move sends."""
        resident = self.resident_bytes
        return self.memory_bytes if resident is None else min(self.memory_bytes, resident)


@dataclass(frozen=True, slots=True)
class MoveCost:
    """What a move is predicted to take."""

    total_s: float
    stand_still_s: float
    sent_bytes: int
    rounds: int
    convergence: float  # probability that pre-copy ends by itself
    then: Then  # what happens where it does not
    slow_down_s: float  # seconds of work that the VM loses while it is sent
    factor: float = 1.0  # what was learnt, and is in the seconds

    @property
    def lost_s(self) -> float:
        """Return the seconds of work that the VM loses in all."""
        return self.slow_down_s + self.stand_still_s


def move_cost(
    load: Load,
    bandwidth: float = UNKNOWN_BANDWIDTH,
    *,
    stand_still_s: float = MOST_STAND_STILL_S,
    not_converging: NotConverging = "auto_converge",
    factor: float = 1.0,
) -> MoveCost:
    """Predict one move over a path of so many bytes per second; `factor` is what was learnt."""
    bandwidth = max(1.0, bandwidth)
    if load.mode == "cold":
        whole = factor * (load.disk_bytes / bandwidth + FIXED_S)
        return MoveCost(whole, whole, load.disk_bytes, 1, 1.0, "converges", 0.0, factor)
    dirty = load.writes
    whole_bytes = load.sent_first_bytes
    ratio = dirty / bandwidth
    left, sent, rounds, took = float(whole_bytes), 0.0, 0, 0.0
    ends = stand_still_s * bandwidth
    while left > ends and rounds < MOST_ROUNDS:
        seconds = left / bandwidth
        sent, took, rounds = sent + left, took + seconds, rounds + 1
        written = min(whole_bytes, dirty * seconds)
        if written >= left:
            break  # each round is as long as the one before
        left = written
    converged = left <= ends
    then: Then = "converges"
    slower = _SLOWER * took
    if not converged:
        then = not_converging
        if then == "auto_converge":
            # It is throttled until it writes half of what the path takes: a few rounds more.
            more = left / bandwidth * 2
            sent, took, rounds = sent + left * 2, took + more, rounds + 2
            slower += _THROTTLED * more
            left = min(left, ends)
        elif then == "post_copy":
            sent, took = sent + left, took + left / bandwidth
            slower += _THROTTLED * left / bandwidth
            left = 0.0
    still = left / bandwidth + SWITCH_S
    return MoveCost(
        total_s=factor * (took + still + FIXED_S),
        stand_still_s=still,
        sent_bytes=int(sent + left),
        rounds=rounds + 1,
        convergence=_convergence(ratio),
        then=then,
        slow_down_s=factor * slower,
        factor=factor,
    )


def _convergence(ratio: float) -> float:
    """Return how probable it is that the VM writes slower than the path takes it."""
    if ratio <= 0:
        return 1.0
    # The true rate is log-normal around the sample: it converges while below the bandwidth.
    return round(0.5 * (1 + math.erf(-math.log(ratio) / (_SPREAD * math.sqrt(2)))), 4)


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of actual over predicted seconds; None for fewer than three moves."""
    ratios = sorted(actual / predicted for predicted, actual in pairs if predicted > 0)
    if len(ratios) < 3:
        return None
    middle = len(ratios) // 2
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2


def learnt_factor(pairs: Sequence[tuple[float, float]]) -> float:
    """Return by how much predictions are to be corrected, within bounds; 1 while little is known.

    Predictions are those before anything learnt was put into them: it would count twice.
    """
    median = median_ratio(pairs)
    return 1.0 if median is None else min(_MOST_FACTOR, max(_LEAST_FACTOR, median))
