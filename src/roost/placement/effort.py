"""How much a search may still do: one limit for a whole question, however many programs it solves.

Counted in CP-SAT's deterministic seconds, so that answers are the same on every machine. By the
clock, if the caller gives one, all of it ends at twice that: what is not counted is bounded, too.
"""

from collections.abc import Callable

#: Of the exact search for one batch: deterministic seconds, about as long on an idle machine.
LIMIT = 5.0
#: Seconds that the clock may show for each deterministic one: on a busy machine.
MOST_WALL = 2
#: Less is not worth a start of the solver.
_NOTHING = 1e-3


class Effort:
    """What is left of a limit; whoever asked may stop the search from another thread."""

    def __init__(
        self,
        limit: float = LIMIT,
        clock: Callable[[], float] | None = None,
        *,
        whole: "Effort | None" = None,
    ) -> None:
        self._left, self._clock, self._whole = limit, clock, whole
        self._end = clock() + MOST_WALL * limit if clock is not None else 0.0
        self._stopped = False
        self._end_solver: Callable[[], None] | None = None

    def part(self, share: float) -> "Effort":
        """Return a share of what is left; what it spends is gone from the whole."""
        return Effort(self.left * share, self._clock, whole=self)

    @property
    def left(self) -> float:
        """Return how many deterministic seconds are left."""
        return self._left if self._whole is None else min(self._left, self._whole.left)

    @property
    def wall_left(self) -> float:
        """Return how many seconds are left by the clock."""
        own = MOST_WALL * self._left if self._clock is None else self._end - self._clock()
        return own if self._whole is None else min(own, self._whole.wall_left)

    def is_over(self) -> bool:
        """Say whether nothing is left, or the search was stopped."""
        return self.stopped or self.left < _NOTHING or self.wall_left < _NOTHING

    @property
    def stopped(self) -> bool:
        """Say whether whoever asked does not want to know any more."""
        return self._stopped if self._whole is None else self._whole.stopped

    def spend(self, seconds: float) -> None:
        """Take from what is left."""
        self._left -= seconds
        if self._whole is not None:
            self._whole.spend(seconds)

    def solving(self, end_solver: Callable[[], None] | None) -> None:
        """Say how the solver that runs now is ended; None: none runs."""
        if self._whole is not None:
            self._whole.solving(end_solver)
        self._end_solver = end_solver

    def stop(self) -> None:
        """End the search as soon as it looks, and the solver that runs at once."""
        self._stopped = True
        if (end_solver := self._end_solver) is not None:
            end_solver()
