"""Exponential back-off: how long to wait before a failed attempt is made again.

    attempt   0        1                2                  ...
    wait      first_s  first_s*factor   first_s*factor**2  ... never more than most_s

Everything that retries waits by this rule; only the two bounds differ from place to place. Chance
is handed in, so that a simulated world repeats. It never sleeps and counts no attempts.
"""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class BackOff:
    """The bounds of an exponential back-off."""

    first_s: float
    most_s: float
    factor: float = 2.0
    #: The share of a wait that chance may take away, so that many clients do not retry at once.
    jitter: float = 0.5

    def wait_s(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt without jitter; the first attempt is 0."""
        try:
            return min(self.most_s, self.first_s * self.factor**attempt)
        except OverflowError:  # a power beyond every float is beyond every bound, too
            return self.most_s

    def jittered_s(self, attempt: int, random: Random) -> float:
        """Return the seconds to wait after an attempt, shortened by chance."""
        return self.wait_s(attempt) * random.uniform(1.0 - self.jitter, 1.0)
