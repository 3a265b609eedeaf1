"""One serial lane per VM, all lanes side by side, each backing off by the class of its failure.

    idle --wake--> turning --done--> idle
                      |  ^
       failed(transient, capacity): wait, or a new order, or room appears
                      |
       failed(permanent) --> idle until a new order

A lane takes one turn at a time. A turn that outlives its budget was cancelled; if the driver
ignores even that, the lane of this VM stays closed until the call ends, so that two calls never
work on one VM. No lane waits for another.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from roost.base.backoff import BackOff
from roost.base.clock import Clock, first_of
from roost.model.states import FailureClass


@dataclass(frozen=True, slots=True)
class LaneBackOff(BackOff):
    """Back-off of a lane by the class of its failure."""

    first_s: float = 1.0
    most_s: float = 300.0
    capacity_s: float = 30.0

    def delay(self, failure: FailureClass, attempt: int, random: Random) -> float | None:
        """Return the seconds to wait after the attempt with this number; None: for a new order."""
        if failure == "permanent":
            return None
        if failure == "capacity":
            return self.capacity_s * random.uniform(0.8, 1.2)
        return self.jittered_s(attempt, random)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn failed, and which order it tried to carry out."""

    generation: int
    failure: FailureClass
    code: str
    message: str


#: A turn either did a step, found nothing to do, or failed.
Turn = Literal["again", "done"] | Failure
TakeTurn = Callable[[str], Awaitable[Turn]]


@dataclass(slots=True)
class _Lane:
    task: "asyncio.Task[None] | None" = None
    failure: Failure | None = None
    attempts: dict[str, int] = field(default_factory=dict)  # failed ones, by their codes
    again: bool = False  # woken during a turn
    urgent: bool = False  # woken during a turn by something that cuts a wait short
    retry: "asyncio.Event | None" = None  # set to cut a wait short
    order: object = None  # the order at the last wake


class Lanes:
    """The lanes of one host: a serial queue of work for each VM."""

    def __init__(
        self, take_turn: TakeTurn, *, clock: Clock, random: Random, back_off: LaneBackOff
    ) -> None:
        self._take_turn = take_turn
        self._clock = clock
        self._random = random
        self._back_off = back_off
        self._lanes: dict[str, _Lane] = {}

    def wake(self, vm_id: str, order: object, *, now: bool = False) -> None:
        """Wake a VM's lane. One that backs off goes on only for another order, or `now`."""
        lane = self._lanes.setdefault(vm_id, _Lane())
        urgent, lane.order = now or order != lane.order, order
        if lane.task is None:
            if lane.failure is None or urgent:  # a permanent failure waits for another order
                lane.task = asyncio.get_running_loop().create_task(self._run(vm_id, lane))
        elif lane.retry is None:
            lane.again, lane.urgent = True, lane.urgent or urgent
        elif urgent:
            lane.retry.set()

    def room_appeared(self) -> None:
        """Wake the lanes that wait for capacity."""
        for lane in self._lanes.values():
            if lane.retry is not None and lane.failure and lane.failure.failure == "capacity":
                lane.retry.set()

    def retry_now(self, code: str) -> None:
        """Wake the lanes that wait with this failure code."""
        for lane in self._lanes.values():
            if lane.retry is not None and lane.failure and lane.failure.code == code:
                lane.retry.set()

    def failure(self, vm_id: str) -> Failure | None:
        """Return why a VM is not as ordered, if a turn failed."""
        lane = self._lanes.get(vm_id)
        return lane.failure if lane else None

    def is_idle(self, vm_id: str) -> bool:
        """Return whether no turn is taken for this VM right now."""
        lane = self._lanes.get(vm_id)
        return lane is None or lane.task is None or lane.retry is not None

    def is_quiet(self) -> bool:
        """Return whether no lane takes a turn."""
        return all(self.is_idle(vm_id) for vm_id in self._lanes)

    async def close(self) -> None:
        """Cancel every lane where it stands, as a crash would."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, vm_id: str, lane: _Lane) -> None:
        try:
            while await self._one_turn(vm_id, lane):
                pass
        finally:
            lane.task = None
            if lane.failure is None and self._lanes.get(vm_id) is lane:
                del self._lanes[vm_id]

    async def _one_turn(self, vm_id: str, lane: _Lane) -> bool:
        """Take one turn of a lane, back off if need be; return whether there is more to do."""
        lane.again = lane.urgent = False
        turn = await self._take_turn(vm_id)
        if not isinstance(turn, Failure):
            lane.failure = None
            lane.attempts.clear()
            return turn == "again" or lane.again
        if lane.failure is None or lane.failure.generation != turn.generation:
            lane.attempts.clear()
        lane.failure = turn
        # By code: having waited long for one thing is no reason to wait long at the next one.
        attempt = lane.attempts.get(turn.code, 0)
        delay = self._back_off.delay(turn.failure, attempt, self._random)
        lane.attempts[turn.code] = attempt + 1
        if lane.urgent:
            return True
        if delay is None:
            return False
        lane.retry = asyncio.Event()
        try:
            await first_of(self._clock, delay, lane.retry)
        finally:
            lane.retry = None
        return True
