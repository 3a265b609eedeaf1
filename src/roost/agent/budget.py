"""Time budgets of driver calls: a call that hangs is given up, and never awaited for long.

A call that is overdue is cancelled. One that ignores even that is left behind as `Stuck`, so that
the caller can keep everything else away from its VM until it ends; nobody waits for it.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from roost.base.clock import Clock
from roost.hostkit.failures import DriverError

T = TypeVar("T")

#: How long a cancelled call may take to end.
GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Budgets:
    """Seconds that each driver call may take; a stop or restart gets the guest's grace on top."""

    ask: float = 10.0  # inventory, list, look, samples, console
    start: float = 180.0
    stop: float = 60.0
    pause: float = 30.0
    resume: float = 30.0
    restart: float = 180.0
    resize: float = 120.0
    protect: float = 10.0
    destroy: float = 300.0
    prepare: float = 120.0
    withdraw: float = 60.0
    send: float = 86_400.0  # the driver watches its progress
    recall: float = 60.0
    land: float = 60.0

    def of(self, kind: str, grace_s: float) -> float:
        """Return the budget of one kind of step; `grace_s` is what a guest may take to end."""
        budget: float = getattr(self, kind)
        return budget + grace_s if kind in _GRACED else budget


#: The steps in which a guest is asked to shut down, and waited for.
_GRACED = frozenset({"stop", "restart"})


class Stuck(DriverError):
    """A driver call that goes on although it was cancelled."""

    def __init__(self, what: str, call: "asyncio.Task[Any]") -> None:
        super().__init__("transient", "driver_hung", f"{what} hangs and cannot be cancelled")
        self.call = call


class Calls:
    """Driver calls under way, by VM; the empty id stands for the host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def within(
        self, seconds: float, what: str, call: Coroutine[Any, Any, T], vm_id: str = ""
    ) -> T:
        """Await a driver call for at most so long; raises DriverError when it is overdue."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(call)
        timer = loop.create_task(self._clock.sleep(seconds))
        if vm_id:
            self._running[vm_id] = task
        try:
            await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await self._give_up(task, what, seconds)
            if task.cancelled():
                raise DriverError("transient", "interrupted", f"{what} was interrupted")
            return task.result()
        finally:
            timer.cancel()
            task.cancel()
            if vm_id and self._running.get(vm_id) is task:
                del self._running[vm_id]

    def interrupt(self, vm_id: str) -> None:
        """Cancel the driver call that is under way for a VM."""
        if task := self._running.get(vm_id):
            task.cancel()

    async def _give_up(self, task: "asyncio.Task[Any]", what: str, seconds: float) -> None:
        task.cancel()
        grace = asyncio.get_running_loop().create_task(self._clock.sleep(GRACE_S))
        try:
            await asyncio.wait((task, grace), return_when=asyncio.FIRST_COMPLETED)
        finally:
            grace.cancel()
        if not task.done():
            task.add_done_callback(_read_result)
            raise Stuck(what, task)
        _read_result(task)
        raise DriverError("transient", "overdue", f"{what} took longer than {seconds:g} s")


def _read_result(task: "asyncio.Task[Any]") -> None:
    """Retrieve the result of an abandoned call, so that asyncio logs no warning."""
    if not task.cancelled():
        task.exception()
