"""How long the live copy of one VM's memory takes: rounds of pre-copy, then a stop-and-copy round.

    round 0        all memory that is used (allocated x utilisation; empty pages are not sent)
    round n        what the guest wrote during round n-1, never more than all of it
    stop-and-copy  as soon as what is left can be sent within the allowed downtime

Pure: time and bandwidth are arguments. A copy is advanced to a moment under the bandwidth that it
has until then; `copying` tells each copy its share of the network. A copy whose rounds do not
shrink, or that takes too long, is given up: the VM stays where it is, unharmed.
"""

import math
from enum import StrEnum

from msgspec import Struct

#: Seconds that a guest may stand still, and seconds that a copy may take; QEMU's and the
#: Scheduler Integration Summary's figures.
DOWNTIME_S, LIMIT_S = 0.3, 300.0
#: So many rounds in a row that hardly shrink are a copy that will never end.
STUBBORN_ROUNDS = 3
#: A round that is not smaller than this share of the one before counts as not shrinking.
_SHRINKS = 0.99
_BYTES_PER_MBIT = 125_000.0


class Limits(Struct, frozen=True, kw_only=True):
    """When a copy may stop the guest, and when it is given up."""

    downtime_s: float = DOWNTIME_S
    limit_s: float = LIMIT_S
    stubborn_rounds: int = STUBBORN_ROUNDS


class Stage(StrEnum):
    """Where a copy stands."""

    LIVE = "live"
    STOPPED = "stopped"  # the guest stands still, the rest is sent
    DONE = "done"
    ABORTED = "aborted"


def bytes_per_s(mbps: float) -> float:
    """Return bytes per second for a rate in Mbit/s."""
    return mbps * _BYTES_PER_MBIT


class Copy:
    """One live copy; all rates in bytes per second, all times in seconds of one clock.

    Within a round and under one bandwidth everything is computed from the moment at which both
    began, so that looking more often never changes what comes out.
    """

    def __init__(
        self, memory_bytes: float, dirty_rate: float, begins_s: float = 0.0,
        limits: Limits | None = None,
    ) -> None:  # fmt: skip
        self.memory_bytes, self.dirty_rate = memory_bytes, dirty_rate
        self.limits = limits or Limits()
        self.began_s = self.now_s = begins_s
        self.stage = Stage.LIVE
        self.rounds: list[float] = [memory_bytes]  # bytes of each round so far
        self.ended_s = math.inf
        self.downtime_s = 0.0
        self.reason = ""
        self._stubborn = 0
        self._bandwidth = 0.0
        self._since_s = begins_s  # everything below is as of then
        self._left, self._dirtied, self._sent = memory_bytes, 0.0, 0.0
        self._stopped_s = math.inf

    # How it stands

    @property
    def over(self) -> bool:
        """Say whether it has come to an end, good or bad."""
        return self.stage in (Stage.DONE, Stage.ABORTED)

    @property
    def left_bytes(self) -> float:
        """Return what the round under way has still to send."""
        return max(self._left - self._passed_s * self._bandwidth, 0.0)

    @property
    def dirtied_bytes(self) -> float:
        """Return what the guest has written since the round began."""
        rate = self.dirty_rate if self.stage is Stage.LIVE else 0.0
        return min(self._dirtied + self._passed_s * rate, self.memory_bytes)

    @property
    def copied_bytes(self) -> float:
        """Return all bytes sent so far, in all rounds."""
        return self._sent + self._left - self.left_bytes

    @property
    def progress(self) -> float:
        """Return how much of the memory is on the other side, from 0 to 1; only ever grows."""
        if self.stage is Stage.DONE or not self.memory_bytes:
            return 1.0
        return min(self.copied_bytes / self.memory_bytes, 1.0)

    # Going on

    def next_event(self, bandwidth: float) -> float:
        """Return when something happens next if the bandwidth stays as it is; inf when over."""
        if self.over:
            return math.inf
        round_ends = self.now_s + (self.left_bytes / bandwidth if bandwidth > 0 else math.inf)
        if bandwidth == self._bandwidth > 0:
            round_ends = self._since_s + self._left / bandwidth
        if self.stage is Stage.STOPPED:
            return round_ends  # the guest stands still: going back would only take longer
        return min(round_ends, self.began_s + self.limits.limit_s)

    def advance(self, to_s: float, bandwidth: float) -> None:
        """Let time pass to a moment under one bandwidth; one that has passed changes nothing."""
        while not self.over:
            if bandwidth != self._bandwidth:
                self._anchor(self.now_s)
                self._bandwidth = bandwidth
            event_s = self.next_event(bandwidth)
            if event_s > to_s:
                break
            self.now_s = max(event_s, self.now_s)
            self._happen()
        self.now_s = max(self.now_s, to_s)

    @property
    def _passed_s(self) -> float:
        return 0.0 if self.over else max(self.now_s - self._since_s, 0.0)

    def _anchor(self, at_s: float) -> None:
        left, dirtied, copied = self.left_bytes, self.dirtied_bytes, self.copied_bytes
        self._left, self._dirtied, self._sent = left, dirtied, copied
        self._since_s = at_s

    def _happen(self) -> None:
        """Do what is due: a round has ended, or the time is up."""
        round_ended = (
            self._bandwidth > 0 and self._since_s + self._left / self._bandwidth <= self.now_s
        )
        if not round_ended:
            return self._end(
                Stage.ABORTED, f"the copy was not done after {self.limits.limit_s:g} s"
            )
        dirtied = self.dirtied_bytes
        self._sent += self._left
        self._left = self._dirtied = 0.0
        self._since_s = self.now_s
        if self.stage is Stage.STOPPED:
            self.downtime_s = self.now_s - self._stopped_s
            return self._end(Stage.DONE, "")
        self._left = dirtied
        if dirtied <= self._bandwidth * self.limits.downtime_s:
            self.stage, self._stopped_s = Stage.STOPPED, self.now_s
        elif self._is_stubborn(dirtied):
            return self._end(Stage.ABORTED, self._why_stubborn())
        elif self.now_s >= self.began_s + self.limits.limit_s:
            return self._end(
                Stage.ABORTED, f"the copy was not done after {self.limits.limit_s:g} s"
            )
        self.rounds.append(dirtied)
        return None

    def _is_stubborn(self, dirtied: float) -> bool:
        shrank = dirtied < _SHRINKS * self.rounds[-1]
        self._stubborn = 0 if shrank else self._stubborn + 1
        return self._stubborn >= self.limits.stubborn_rounds

    def _why_stubborn(self) -> str:
        return (
            f"the copy cannot converge: the guest writes {_mbit(self.dirty_rate)} and "
            f"{_mbit(self._bandwidth)} can be sent"
        )

    def _end(self, stage: Stage, reason: str) -> None:
        # What was begun of a round that is given up has been sent all the same.
        self._anchor(self.now_s)
        self.stage, self.reason, self.ended_s = stage, reason, self.now_s


def _mbit(rate: float) -> str:
    return f"{rate / _BYTES_PER_MBIT:,.0f} Mbit/s"
