"""How often somebody may ask: a token bucket for each token or address.

A bucket is one number, the moment at which it is full again, so that a request costs a look into a
dictionary. Nobody is told to wait before a whole burst was used up.
"""

from math import ceil

from roost.base.errors import TooManyRequests

#: Buckets that are kept; full ones are forgotten first, as one that is not there is full.
MOST_BUCKETS = 20_000


class Rate:
    """So many requests a second for each of many, in bursts of some seconds' worth."""

    __slots__ = ("_burst_s", "_each_s", "_full_at", "_per_s", "_what")

    def __init__(self, per_s: float, burst_s: float, what: str) -> None:
        self._per_s, self._burst_s, self._what = per_s, burst_s, what
        self._each_s = 1 / per_s if per_s > 0 else 0.0
        self._full_at: dict[str, float] = {}

    def take(self, who: str, now: float, count: int = 1) -> None:
        """Count a request, or several; raises TooManyRequests when the bucket is empty."""
        full_at = self._full_at.get(who, now)
        if full_at > now:
            wait_s = full_at - now - self._burst_s
            if wait_s > 0:
                raise self._refused(wait_s)
        else:
            full_at = now
            if len(self._full_at) > MOST_BUCKETS:
                self._forget(now)
        self._full_at[who] = full_at + count * self._each_s

    def _refused(self, wait_s: float) -> TooManyRequests:
        return TooManyRequests(
            f"{self._what} may send {self._per_s:g} a second",
            hint="Maybe wait for so many seconds as Retry-After says, then go on more slowly.",
            per_s=self._per_s,
            retry_after_s=max(1, ceil(wait_s)),
        )

    def _forget(self, now: float) -> None:
        kept = {who: at for who, at in self._full_at.items() if at > now}
        # Of too many that are not full the oldest go: who has so many addresses has the time too.
        self._full_at = dict(list(kept.items())[-MOST_BUCKETS // 2 :])
