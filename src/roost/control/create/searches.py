"""Exact searches of one process: one at a time, in a thread of their own, each with an end.

They keep a processor busy for seconds. In the threads that all other questions share a few of them
would keep those waiting, and the process from stopping.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from roost.base.clock import Clock
from roost.base.errors import FleetUnavailable
from roost.placement.effort import LIMIT, Effort

T = TypeVar("T")


class Searches:
    """Runs exact searches in turn; ends them when nobody waits for them any more."""

    def __init__(self, clock: Clock, limit_s: float = LIMIT) -> None:
        self._clock, self._limit_s = clock, limit_s
        #: Whoever has it may search: a fleet is copied then, not while others have their turn.
        self.turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="roost-search")
        self._under_way: Effort | None = None
        self._stopped = False

    async def run(self, ask: Callable[[Effort], T]) -> T:
        """Run a search in whoever's turn it is; end it if its asker is cancelled."""
        self._refuse_if_stopped()
        self._under_way = effort = Effort(self._limit_s, self._clock.monotonic)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, ask, effort)
        finally:
            effort.stop()
        self._refuse_if_stopped()
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
