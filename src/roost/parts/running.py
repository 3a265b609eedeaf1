"""Runs the parts of one process: their loops, and what one process does for all.

One loop renews every lease of the process in one transaction and then lets each part whose lease is
held look, in the order of the parts, unless it may rest. A part's mistake is logged and keeps
nobody else from working.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from roost.base.clock import Clock
from roost.base.errors import RoostError
from roost.parts.part import Loop, Part
from roost.parts.resting import Resting
from roost.parts.singleton import Leases

log = logging.getLogger("roost.parts")


class Runner:
    """Runs the loops and singletons of one process's parts."""

    def __init__(
        self,
        parts: Sequence[Part],
        leases: Leases,
        clock: Clock,
        watch_s: float,
        resting: Resting,
        able: Callable[[], bool] = lambda: True,
    ) -> None:
        self._parts, self._leases, self._clock = parts, leases, clock
        self._watch_s, self._resting = watch_s, resting
        self._able = able  # a process that is not gives its leases up by not renewing them
        now = clock.monotonic()
        self._next_look = {part: now + part.look_s for part in parts if part.singleton is not None}
        self._held: dict[Part, int] = {}  # the token under which a part looked last
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin every loop."""
        loops = [loop for part in self._parts for loop in part.loops()]
        loops.append(Loop(self.run_singletons, self._watch_s))
        self._tasks = [asyncio.create_task(self._repeat(loop)) for loop in loops]

    async def stop(self) -> None:
        """End every loop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, loop: Loop) -> None:
        """Run a loop's work again and again; a failure is logged and retried."""
        if loop.pause_s is None:
            await loop.work()
            return
        while True:
            await self._clock.sleep(loop.pause_s)
            await _attempt(loop.work)

    async def run_singletons(self) -> None:
        """Renew the leases, and let every part look whose lease is held here and whose time is."""
        if not self._able():
            return
        await self._leases.tick()
        for part, next_look in self._next_look.items():
            token = part.singleton.token if part.singleton is not None else None
            if token is None:
                self._held.pop(part, None)
                continue
            if self._held.get(part) != token:
                self._held[part] = token
                part.gained()
                self._resting.wake(part)
            if self._clock.monotonic() >= next_look and not self._resting.may_rest(part):
                self._next_look[part] = self._clock.monotonic() + part.look_s
                await self._look(part)

    async def _look(self, part: Part) -> None:
        looked = False
        self._resting.begins(part)
        try:
            looked = await _attempt(part.look, part.may_look)
        finally:
            if not looked:
                self._resting.wake(part)


async def _attempt(
    work: Callable[[], Awaitable[object]], may: Callable[[], Awaitable[bool]] | None = None
) -> bool:
    """Do some work if that is allowed; return whether it was done to its end."""
    try:
        if may is None or await may():
            await work()
            return True
    except RoostError as error:
        log.warning("%s: %s", getattr(work, "__qualname__", "loop"), error.message)
    except Exception:  # a service loop must outlive its mistakes
        log.exception("%s failed", getattr(work, "__qualname__", "loop"))
    return False
