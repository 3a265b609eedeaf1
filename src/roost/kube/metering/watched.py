"""A mirror as the exporter needs it: it knows its age; and a count of what a mirror tells."""

import asyncio
from collections import Counter

from roost.base.errors import RoostError
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Key


class WatchedMirror(Mirror):
    """A mirror that knows since when it is behind, and can be read anew."""

    broken_at: float | None = None
    _trouble: RoostError | None = None

    @property
    def trouble(self) -> RoostError | None:
        """Return why it is behind, while it is."""
        return self._trouble

    @trouble.setter
    def trouble(self, error: RoostError | None) -> None:
        if (error is None) != (self._trouble is None):
            self.broken_at = None if error is None else self._clock.monotonic()
            self._trouble = error
            self._wake()  # whoever waits may wait for just that
        self._trouble = error

    @property
    def age_s(self) -> float:
        """Return how long nothing could be heard."""
        return 0.0 if self.broken_at is None else self._clock.monotonic() - self.broken_at

    async def refresh(self) -> None:
        """List all objects now; when that cannot be, go on as before."""
        await self.stop()
        try:
            await self.start()
        except BaseException as error:
            if isinstance(error, RoostError):
                self.trouble = error
            self._task = asyncio.create_task(self._keep(), name=f"mirror {self.resource.plural}")
            raise


class Tally:
    """How many things are in which state; each is counted once, however often it is told."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._states: dict[Key, str] = {}

    def put(self, key: Key, state: str | None) -> None:
        """Say in which state a thing is; None: in none."""
        before = self._states.pop(key, None)
        if before is not None:
            self.counts[before] -= 1
        if state is not None:
            self._states[key] = state
            self.counts[state] += 1
