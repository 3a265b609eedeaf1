"""Whether the wall clock can be believed: it advances as the monotonic clock does.

What ends at a moment of the wall clock is ended for good. A clock that is suddenly days ahead would
end everything at once, so after a jump nothing ends until the clock has gone on steadily for a
while: long enough for whatever keeps its time, or whoever is told, to set it right. A machine that
slept has jumped as well; it only waits.
"""

import logging

from roost.base.clock import Clock

log = logging.getLogger("roost.clock")

#: How far the wall clock may get ahead of, or behind, the monotonic clock at once.
TOLERANCE_S = 300.0
#: How long it must advance steadily after a jump before it is believed.
CONFIRM_S = 600.0


class SteadyWall:
    """Watches the wall clock of one process. What it says when the process starts is believed.

    One of those in a process says `aloud`, in the log, what it finds.
    """

    def __init__(self, clock: Clock, *, aloud: bool = True) -> None:
        self._clock, self._log_level = clock, logging.ERROR if aloud else logging.DEBUG
        self._believed = self._ahead()
        self._jumped: tuple[float, float] | None = None  # how far ahead it is now, and since when

    def is_steady(self) -> bool:
        """Say whether the wall clock is to be believed now; asked at every look."""
        ahead, now = self._ahead(), self._clock.monotonic()
        if abs(ahead - self._believed) <= TOLERANCE_S:
            self._believed, self._jumped = ahead, None  # it may drift, slowly
        elif self._jumped is None or abs(ahead - self._jumped[0]) > TOLERANCE_S:
            self._jumped = ahead, now
            log.log(self._log_level, "%s", self.trouble())
        elif now - self._jumped[1] >= CONFIRM_S:
            said = "the wall clock has been steady for %d s: it is believed"
            log.log(min(self._log_level, logging.WARNING), said, CONFIRM_S)
            self._believed, self._jumped = ahead, None
        return self._jumped is None

    def moments_ms(self) -> tuple[int, ...]:
        """Return what the time may be: the wall clock's, and before that one is believed both."""
        wall = self._clock.wall_ms()
        if self.is_steady():
            return (wall,)
        return wall, round(1000 * (self._believed + self._clock.monotonic()))

    def trouble(self) -> str:
        """Say what is wrong with the wall clock; empty when nothing is."""
        if self._jumped is None:
            return ""
        by = round(self._jumped[0] - self._believed)
        return (
            f"the wall clock jumped by {by:+d} s: no VM, reservation or job is ended before it has "
            f"been steady for {CONFIRM_S:.0f} s"
        )

    def _ahead(self) -> float:
        return self._clock.wall_ms() / 1000 - self._clock.monotonic()
