"""How long something has waited that a stored moment tells of, though the clock may be set back.

Moments are stored by the wall clock, which a new controller needs to go on; the time since one was
first seen here is taken by a clock that only goes forward. The longer of both counts, so a wait
never lasts longer than it would with a clock that nobody touches, counted from when it was seen.
"""

from roost.base.clock import Clock
from roost.kube.base.moments import moment_ms
from roost.kube.base.objects import Key


class Waited:
    """Remembers when each key's moment was first seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[str, float]] = {}

    def since(self, key: Key, moment: str | None) -> float:
        """Return for how many seconds a key has waited since a moment; 0 when there is none."""
        if not moment:
            return 0.0
        now = self._clock.monotonic()
        if (known := self._seen.get(key)) is None or known[0] != moment:
            known = self._seen[key] = moment, now
        return max((self._clock.wall_ms() - moment_ms(moment)) / 1000, now - known[1])

    def forget(self, key: Key) -> None:
        """Forget a key that waits no longer."""
        self._seen.pop(key, None)
