"""Who is told within this process that something of theirs has changed.

A doorbell and nothing more: whoever is woken looks at the rows. Other processes look by themselves
twice a second, so what is rung elsewhere is only noticed a little later.
"""

import asyncio
from collections.abc import Iterable

from roost.base.clock import Clock, first_of

#: After how long somebody who waits looks at the rows though nobody rang.
LOOK_S = 0.5


class Bell:
    """Wakes those who wait for a name; ringing for a name that nobody waits for is remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, asyncio.Event] = {}

    def ring(self, names: Iterable[str]) -> None:
        """Wake whoever waits for one of these names."""
        for name in names:
            event = self._waiting.get(name)
            if event is not None:
                event.set()

    async def wait(self, name: str, seconds: float) -> bool:
        """Wait until somebody rings for a name, at most so long; return whether it was rung."""
        event = self._waiting.get(name)
        if event is None or event.is_set():
            event = self._waiting[name] = asyncio.Event()
        try:
            return await first_of(self._clock, seconds, event)
        finally:
            if self._waiting.get(name) is event:
                del self._waiting[name]


class Summons:
    """Wakes the one loop of a part; rung while it works, it works once more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Ask for one more look."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait until somebody rings, at most so long."""
        if not self._event.is_set():
            await first_of(self._clock, seconds, self._event)
        self._event.clear()
