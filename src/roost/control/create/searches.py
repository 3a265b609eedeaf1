"""Exact searches of one process: one at a time, in a thread of their own, each with an end.

They keep a processor busy for seconds. In the threads that all other questions share a few of them
would keep those waiting, and the process from stopping. Whoever waits for a turn does so for a
bounded time, behind a bounded number of others, and is told when that is over. For a client that
has hung up nobody searches, and nobody waits.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from roost.base.clock import Clock, first_of
from roost.base.errors import FleetUnavailable, SearchBusy
from roost.control.memory.oneatatime import MOST_WAITING
from roost.parts.asker import Asker
from roost.placement.effort import LIMIT, MOST_WALL, Effort

T = TypeVar("T")

#: How long one waits at most: so many searches at their limit.
_WAITS_FOR = 6


class Searches:
    """Runs exact searches in turn; ends them when nobody waits for them any more."""

    def __init__(self, clock: Clock, limit_s: float = LIMIT) -> None:
        self._clock, self._limit_s = clock, limit_s
        self.wait_s = _WAITS_FOR * MOST_WALL * limit_s
        self._searching = False
        self._waiting: list[asyncio.Event] = []  # the first is the next
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="roost-search")
        self._under_way: Effort | None = None
        self._stopped = False

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Wait until nobody else searches; raises SearchBusy when that takes too long.

        A fleet is copied in one's turn, not while others have theirs.
        """
        if self._searching:
            await self._wait(asker)
        self._searching = True
        try:
            yield
        finally:
            if self._waiting:
                self._waiting.pop(0).set()  # it is theirs now, before anybody else comes
            else:
                self._searching = False

    async def _wait(self, asker: Asker) -> None:
        before = len(self._waiting)
        if before >= MOST_WAITING:
            raise SearchBusy(
                f"{before} batches wait already for their turn of a search; nothing was kept",
                waiting=before,
                hint="Maybe try again later, or ask for fewer VMs at once.",
            )
        mine = asyncio.Event()
        self._waiting.append(mine)
        try:
            with asker.ends(mine.set):
                came = await first_of(self._clock, self.wait_s, mine)
            _refuse_if_left(asker)
        except BaseException:
            self._give_up(mine)
            raise
        if not came:
            self._give_up(mine)
            raise SearchBusy(
                f"searches for other batches have taken {self.wait_s:g} s, and this one had no "
                "turn; nothing was kept",
                waited_s=self.wait_s,
                hint="Maybe try again later, or ask for fewer VMs at once.",
            )

    def _give_up(self, mine: asyncio.Event) -> None:
        """Leave the row; who was given the turn in the very moment passes it on."""
        if mine in self._waiting:
            self._waiting.remove(mine)
        elif self._waiting:
            self._waiting.pop(0).set()
        else:
            self._searching = False

    async def run(self, ask: Callable[[Effort], T], asker: Asker) -> T:
        """Run a search in whoever's turn it is; end it if its asker leaves or is cancelled."""
        self._refuse_if_stopped()
        _refuse_if_left(asker)
        self._under_way = effort = Effort(self._limit_s, self._clock.monotonic)
        try:
            with asker.ends(effort.stop):
                found = await asyncio.get_running_loop().run_in_executor(self._thread, ask, effort)
        finally:
            effort.stop()
        self._refuse_if_stopped()
        _refuse_if_left(asker)
        return found

    def stop(self) -> None:
        """End what is under way, and refuse what comes: the process does not wait for it."""
        self._stopped = True
        if self._under_way is not None:
            self._under_way.stop()
        self._thread.shutdown(wait=False)

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise FleetUnavailable("the control plane is stopping; nothing was kept")


def _refuse_if_left(asker: Asker) -> None:
    """End the request of a client that has hung up; the log and the meters alone hear of it."""
    if asker.has_left:
        raise FleetUnavailable("the client has hung up; nothing was kept")
