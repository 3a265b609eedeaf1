"""What every clock promises: call each law with the clock under test.

A `World` has the clock and lets time pass on it; `unit_s` is a span that is long enough to tell
apart from nothing, and short enough to be waited for.
"""

import asyncio
from typing import Protocol

import pytest

from roost.base.clock import Clock, first_of


class World(Protocol):
    """A clock and the hand that moves it."""

    clock: Clock
    unit_s: float

    async def pass_by(self, seconds: float) -> None:
        """Let so much time pass on the clock."""


async def time_never_goes_back(world: World) -> None:
    """Readings only grow, and by no less than was waited."""
    seen = [world.clock.monotonic()]
    for _ in range(5):
        await world.pass_by(world.unit_s)
        seen.append(world.clock.monotonic())
    assert seen == sorted(seen)
    assert seen[-1] - seen[0] >= 5 * world.unit_s * 0.99


async def the_wall_follows_in_milliseconds(world: World) -> None:
    """The wall clock is a whole number of milliseconds that moves as much."""
    before = world.clock.wall_ms()
    await world.pass_by(2 * world.unit_s)
    assert isinstance(before, int)
    assert world.clock.wall_ms() - before >= int(2 * world.unit_s * 1000) - 2


async def sleepers_wake_in_the_order_of_their_time(world: World) -> None:
    """Whoever asked for less wakes first, whoever lay down first among equals."""
    woken: list[str] = []

    async def sleeper(name: str, units: float) -> None:
        await world.clock.sleep(units * world.unit_s)
        woken.append(name)

    asked = [("long", 3), ("short", 1), ("middle", 2), ("none", 0)]
    tasks = [asyncio.create_task(sleeper(name, units)) for name, units in asked]
    await world.pass_by(4 * world.unit_s)
    await asyncio.gather(*tasks)
    assert woken == ["none", "short", "middle", "long"]


async def nobody_wakes_early(world: World) -> None:
    """A sleep ends when its time has passed on the same clock."""
    began = world.clock.monotonic()
    task = asyncio.create_task(world.clock.sleep(2 * world.unit_s))
    await world.pass_by(4 * world.unit_s)
    await task
    assert world.clock.monotonic() - began >= 2 * world.unit_s * 0.99


async def no_time_or_less_is_no_wait(world: World) -> None:
    """A span that is over already is not waited for."""
    tasks = [asyncio.create_task(world.clock.sleep(span)) for span in (0.0, -5.0)]
    await world.pass_by(world.unit_s)
    assert all(task.done() for task in tasks)


async def a_cancelled_sleeper_disturbs_nobody(world: World) -> None:
    """Others sleep on and wake in time."""
    leaves = asyncio.create_task(world.clock.sleep(world.unit_s))
    stays = asyncio.create_task(world.clock.sleep(2 * world.unit_s))
    await asyncio.sleep(0)
    leaves.cancel()
    await world.pass_by(4 * world.unit_s)
    await stays
    with pytest.raises(asyncio.CancelledError):
        await leaves


async def the_first_of_event_and_time_ends_a_wait(world: World) -> None:
    """`first_of` tells which it was, on this clock."""
    event = asyncio.Event()
    late = asyncio.create_task(first_of(world.clock, world.unit_s, event))
    await world.pass_by(2 * world.unit_s)
    assert await late is False
    soon = asyncio.create_task(first_of(world.clock, 1e9, event))
    await asyncio.sleep(0)
    event.set()
    assert await soon is True


LAWS = [
    time_never_goes_back,
    the_wall_follows_in_milliseconds,
    sleepers_wake_in_the_order_of_their_time,
    nobody_wakes_early,
    no_time_or_less_is_no_wait,
    a_cancelled_sleeper_disturbs_nobody,
    the_first_of_event_and_time_ends_a_wait,
]
