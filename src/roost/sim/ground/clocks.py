"""Time in a world: a machine's clock may run fast, jump, or stand still while nothing happens.

A `Machine` reads its time from a frame: the loop's own time, or a `PausedTime` that passes only
while there is something to do (`roost.sim.actors.time_skip`). Its processes sleep on it; when the
machine changes frames, whoever sleeps goes on sleeping for as long as was left.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol

from roost.base.timestamps import timestamp
from roost.sim.ground.lives import Life

_EPOCH_MS = 1_700_000_000_000


def moment(seconds: float) -> str:
    """Return the time that a world shows after so many seconds."""
    return timestamp(_EPOCH_MS + round(seconds * 1000))


class Timer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the timer."""


class Frame(Protocol):
    """Time that passes, with timers in it. An event loop is one."""

    def time(self) -> float:
        """Return the time of this frame."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call at a time of this frame."""


class PausedTime:
    """A frame that can be held: its timers wait as long. It begins by passing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time, self._since = loop.time(), loop.time()
        self.held = False
        self._timers: list[tuple[float, int, _PausedTimer]] = []
        self._turn = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def time(self) -> float:
        """Return how much time has passed that was not held."""
        return self._time if self.held else self._time + self._loop.time() - self._since

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call at a time of this frame."""
        self._turn += 1
        timer = _PausedTimer(partial(callback, *args))
        heappush(self._timers, (when, self._turn, timer))
        if not self.held and (self._armed is None or when < self._armed_for):
            self._arm()
        return timer

    def hold(self) -> None:
        """Hold the time of this frame."""
        self._time, self.held = self.time(), True
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def go_on(self) -> None:
        """Let the time of this frame pass again."""
        if self.held:
            self.held, self._since = False, self._loop.time()
            self._arm()

    def _arm(self) -> None:
        while self._timers and self._timers[0][2].cancelled:
            heappop(self._timers)
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        if self._timers:
            self._armed_for = self._timers[0][0]
            when = self._since + self._armed_for - self._time
            self._armed = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._armed = None
        # What is due by a rounding error is due: else it would be waited for without end.
        now = self.time() + 1e-9
        while self._timers and (self._timers[0][0] <= now or self._timers[0][2].cancelled):
            timer = heappop(self._timers)[2]
            if not timer.cancelled:
                timer.ring()
        if not self.held and self._armed is None:
            self._arm()


class _PausedTimer:
    """One timer of a `PausedTime`."""

    __slots__ = ("cancelled", "ring")

    def __init__(self, ring: Callable[[], object]) -> None:
        self.ring, self.cancelled = ring, False

    def cancel(self) -> None:
        """Cancel the timer."""
        self.cancelled = True


class Machine:
    """What all processes of one machine share: how its clocks go, and who sleeps on them."""

    def __init__(
        self, frame: Frame | None = None, rate: float = 1.0, offset_s: float = 0.0
    ) -> None:
        frame = frame or asyncio.get_running_loop()
        self.frame, self.rate = frame, rate
        self.offset_s = offset_s  # of the wall clock
        self._local, self._since = frame.time() * rate, frame.time()
        self._sleepers: dict[asyncio.Future[None], tuple[float, Timer]] = {}

    def monotonic(self) -> float:
        """Return seconds since some beginning, as this machine counts them."""
        return self._local + (self.frame.time() - self._since) * self.rate

    async def sleep(self, seconds: float) -> None:
        """Sleep by this machine's clock."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Never nothing: what waits for a rounding error would wait for it for ever.
        seconds = max(1e-6, seconds)
        when = self.frame.time() + seconds / self.rate
        timer = self.frame.call_at(when, _wake, waiting)
        self._sleepers[waiting] = (self.monotonic() + seconds, timer)
        try:
            await waiting
        finally:
            self._sleepers.pop(waiting)[1].cancel()

    def follow(self, frame: Frame) -> None:
        """Follow another frame of time from now on."""
        if frame is self.frame:
            return
        self._local, self._since = self.monotonic(), frame.time()
        self.frame = frame
        for waiting, (due, timer) in self._sleepers.items():
            timer.cancel()
            when = self._since + max(0.0, due - self._local) / self.rate
            self._sleepers[waiting] = (due, frame.call_at(when, _wake, waiting))


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


class NodeClock:
    """Implements `Clock` for one life on one machine."""

    def __init__(self, machine: Machine, life: Life) -> None:
        self._machine, self._life = machine, life

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, as this machine has it."""
        now = asyncio.get_running_loop().time()
        return _EPOCH_MS + int((now + self._machine.offset_s) * 1000)

    def monotonic(self) -> float:
        """Return seconds since this machine's clock began."""
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep by this machine's clock."""
        await self._machine.sleep(seconds)
        await self._life.gate()
