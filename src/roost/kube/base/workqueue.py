"""Keys that want looking at: each by one worker at a time, some at once, failures later again.

The queue holds no news, only that something about an object may have changed; whoever works on it
looks at how things are. So news may come twice or in any order, and none is lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from random import Random

from roost.base.backoff import BackOff
from roost.base.clock import Clock
from roost.base.errors import Conflict, RoostError
from roost.kube.base.objects import Key

log = logging.getLogger("roost.kube")

_WAITS = BackOff(0.05, 30.0)
#: Failures after which it is worth telling; the first ones are usually a race that goes away.
_TELL_AFTER = 3


class WorkQueue:
    """Calls some work for keys; it returns after how many seconds it wants to look again."""

    def __init__(
        self,
        work: Callable[[Key], Awaitable[float | None]],
        clock: Clock,
        random: Random,
        *,
        what: str,
        at_once: int = 16,
    ) -> None:
        self._work, self._clock, self._random = work, clock, random
        self._what, self._at_once = what, at_once
        self._waiting: dict[Key, None] = {}
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.Task[None]] = {}
        self._there = asyncio.Semaphore(0)
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, key: Key) -> None:
        """Have a key looked at; one that is being looked at is looked at again."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._there.release()

    def start(self) -> None:
        """Start the workers of the queue."""
        self._tasks = [
            asyncio.create_task(self._run(), name=f"{self._what} {number}")
            for number in range(self._at_once)
        ]

    async def stop(self) -> None:
        """End, in the middle of whatever is being done."""
        tasks = [*self._tasks, *self._timers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._timers = [], {}

    async def _run(self) -> None:
        while True:
            await self._there.acquire()
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._busy.add(key)
            try:
                self._later(key, await self._work(key))
                self._failures.pop(key, None)
            except RoostError as error:
                self._failed(key, error)
            except Exception as error:  # a service: one object's trouble must not end the others'
                log.exception("%s %s: our bug", self._what, "/".join(key))
                self._failed(key, error)
            finally:
                self._busy.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _failed(self, key: Key, error: Exception) -> None:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        if count >= _TELL_AFTER and not isinstance(error, Conflict):
            log.warning("%s %s, try %d: %s", self._what, "/".join(key), count, error)
        self._later(key, _WAITS.jittered_s(count - 1, self._random))

    def _later(self, key: Key, wait_s: float | None) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if wait_s is not None:
            self._timers[key] = asyncio.create_task(self._wait(key, wait_s))

    async def _wait(self, key: Key, wait_s: float) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._clock.sleep(wait_s)
            if self._timers.get(key) is asyncio.current_task():
                del self._timers[key]
            self.add(key)
