"""How long something has been as it is, by this process's own monotonic clock.

Clocks of machines and of the database are never compared: what a row says only tells whether it is
still the same. A process that has just taken over begins to count anew.
"""

from collections.abc import Collection
from typing import Any

from roost.base.clock import Clock


class Unchanged:
    """Remembers since when each of some things looks as it does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Any, float]] = {}

    def seconds(self, name: str, now: object) -> float:
        """Return for how long a thing has looked like this."""
        moment = self._clock.monotonic()
        before, since = self._seen.get(name, (None, moment))
        if name not in self._seen or before != now:
            self._seen[name] = now, moment
            return 0.0
        return moment - since

    def __len__(self) -> int:
        """Return how many things are remembered."""
        return len(self._seen)

    def forget_others(self, names: Collection[str], prefix: str = "") -> None:
        """Forget all things but those of these names; with a prefix, of things that begin so."""
        for name in self._seen.keys() - set(names):
            if name.startswith(prefix):
                del self._seen[name]

    def clear(self) -> None:
        """Begin to count anew."""
        self._seen.clear()
