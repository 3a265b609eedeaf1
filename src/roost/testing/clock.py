"""A clock that a test moves by hand. Everything that sleeps on it wakes in the order of its time.

Use it wherever a `Clock` is handed in. It never moves by itself and never touches the machine's
clock; `pass_by` and `settle` also give the event loop its turns, so that whoever woke goes on.
"""

import asyncio
import heapq

#: Turns of the event loop after which everything that can go on has gone on.
SETTLING_TURNS = 40


class HandClock:
    """Implements `Clock`. Time stands still unless the test moves it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.ahead_s = 0.0  # of the wall clock, when it is wrong
        self._order = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._asleep = asyncio.Event()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970: `now`, in another unit, unless it is set wrong."""
        return int((self.now + self.ahead_s) * 1000)

    def monotonic(self) -> float:
        """Return `now`, in seconds."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock so far."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._sleepers, (self.now + max(0.0, seconds), self._order, future))
        self._asleep.set()
        await future

    def move(self, seconds: float) -> None:
        """Let time pass at once; whoever slept wakes at the loop's next turn."""
        self.now += seconds
        self._wake()

    async def tick(self) -> None:
        """Wait until somebody sleeps, however long that takes, then move to when they wake."""
        while not (waiting := [each for each in self._sleepers if not each[2].done()]):
            self._asleep.clear()
            await self._asleep.wait()
        self.move(max(0.0, min(waiting)[0] - self.now))

    async def settle(self) -> None:
        """Let everything that does not wait for time go on until it does."""
        for _ in range(SETTLING_TURNS):
            await asyncio.sleep(0)
            if self._wake():
                await self.settle()

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, one sleeper after the other."""
        end = self.now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now = max(self.now, self._sleepers[0][0])
            self._wake()
            await self.settle()
        self.now = end

    def _wake(self) -> bool:
        woken = False
        while self._sleepers and self._sleepers[0][0] <= self.now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)
                woken = True
        return woken
