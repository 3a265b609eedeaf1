"""How many VMs are in each state, for metrics: counted when somebody asks and something happened.

No process knows the state of every VM by heart, so the ledger is asked: one question, which goes
through all VMs once. It is asked at most every `PERIOD_S`, and not while no event came since it was
asked last; nobody who scrapes waits for it longer than `PATIENCE_S`. What is not known is left out:
no number is shown that is older than `STALE_S` without being so still.
"""

import asyncio
import logging
from collections.abc import Mapping

from roost.base.clock import Clock, first_of
from roost.base.errors import RoostError
from roost.control.memory.follower import Follower
from roost.control.vms.states import count_states
from roost.ledger.store import Store

log = logging.getLogger("roost.metrics")

PERIOD_S = 15.0
PATIENCE_S = 2.0
STALE_S = 60.0


class StateCounts:
    """Counts the VMs of each state, once for all who ask."""

    def __init__(self, store: Store, follower: Follower, clock: Clock) -> None:
        self._store, self._follower, self._clock = store, follower, clock
        self._counted: Mapping[str, int] = {}
        self._asked_s = -PERIOD_S
        self._true_s = 0.0  # when it was so
        self._event = -1  # the last one before it was asked
        self._asking: asyncio.Task[None] | None = None

    def values(self) -> Mapping[str, int]:
        """Return the VMs in each state as they were counted last, or nothing."""
        return self._counted

    async def refresh(self) -> None:
        """Count again if that is due, and wait for it a little."""
        now_s = self._clock.monotonic()
        if self._counted and self._event == self._follower.applied and not self._follower.lags:
            self._true_s = now_s
            return
        if self._asking is None and now_s - self._asked_s >= PERIOD_S:
            self._asked_s = now_s
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            over = asyncio.Event()
            self._asking.add_done_callback(lambda _: over.set())
            await first_of(self._clock, PATIENCE_S, over)
        if self._clock.monotonic() - self._true_s > STALE_S:
            self._counted = {}

    async def _ask(self) -> None:
        event, now_s = self._follower.applied, self._clock.monotonic()
        try:
            self._counted = await self._store.read(count_states)
            self._event, self._true_s = event, now_s
        except RoostError:  # others say that there is no database
            self._counted = {}
        except Exception:  # metrics must outlive it
            self._counted = {}
            log.exception("VMs cannot be counted")
        finally:
            self._asking = None

    async def close(self) -> None:
        """Give up what is being counted."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
