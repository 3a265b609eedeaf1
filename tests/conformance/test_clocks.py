"""The machine's clock, the simulator's and the hand clock keep the same promises."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roost.base.clock import Clock, RealClock
from roost.sim.ground.clocks import Machine, NodeClock, PausedTime
from roost.sim.ground.lives import Life
from roost.sim.ground.loop import VirtualLoop
from roost.testing.clock import HandClock
from tests.conformance.clocks import LAWS, World

Law = Callable[[World], Awaitable[None]]


class Sleeping:
    """A clock whose time passes by itself."""

    def __init__(self, clock: Clock, unit_s: float) -> None:
        self.clock, self.unit_s = clock, unit_s

    async def pass_by(self, seconds: float) -> None:
        await asyncio.sleep(0)  # let those who were just started lie down first
        await self.clock.sleep(seconds)


class ByHand:
    """The hand clock."""

    unit_s = 10.0

    def __init__(self) -> None:
        self.clock = HandClock()

    async def pass_by(self, seconds: float) -> None:
        await self.clock.pass_by(seconds)


def real(law: Law) -> None:
    async def whole() -> None:
        await law(Sleeping(RealClock(), 0.02))

    asyncio.run(whole())


def by_hand(law: Law) -> None:
    async def whole() -> None:
        await law(ByHand())

    asyncio.run(whole())


def simulated(law: Law, *, paused: bool = False, rate: float = 1.0) -> None:
    async def whole() -> None:
        loop = asyncio.get_running_loop()
        machine = Machine(PausedTime(loop) if paused else None, rate)
        await law(Sleeping(NodeClock(machine, Life("test")), 10.0))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(whole())


def simulated_paused(law: Law) -> None:
    simulated(law, paused=True)


CLOCKS: list[Any] = [real, by_hand, simulated, simulated_paused]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.__name__)
def test_a_clock_keeps_its_promises(clock: Callable[[Law], None], law: Law) -> None:
    clock(law)


class Sloppy(HandClock):
    """Wakes everybody at once, whenever time moves at all."""

    def _wake(self) -> bool:
        woken = bool(self._sleepers)
        while self._sleepers:
            future = self._sleepers.pop()[2]
            if not future.done():
                future.set_result(None)
        return woken


class Backwards(HandClock):
    """Is set back a little at every look."""

    def monotonic(self) -> float:
        self.now -= 30.0
        return self.now


@pytest.mark.parametrize("broken", [Sloppy, Backwards])
def test_the_suite_sees_a_broken_clock(broken: type[HandClock]) -> None:
    async def whole(law: Law) -> None:
        world = ByHand()
        world.clock = broken()
        await law(world)

    failed = 0
    for law in LAWS:
        try:
            asyncio.run(asyncio.wait_for(whole(law), 20))
        except (AssertionError, TimeoutError):
            failed += 1
    assert failed >= 1
