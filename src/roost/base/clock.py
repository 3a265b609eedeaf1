"""Time as a thing that is handed in: the wall, the monotonic clock and waiting.

Everything above the pure packages takes a `Clock` from whoever composes it, so that a simulation
can run the same code on virtual time. Durations are always measured on `monotonic`; `wall_ms` is
only ever shown to people or stored beside a row, never compared between machines.
"""

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a command that asks once never waits by it, and needs none of it to start
    import asyncio


class Clock(Protocol):
    """Where time comes from."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, UTC; may jump."""

    def monotonic(self) -> float:
        """Return seconds since some moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""


class RealClock:
    """The clock of the machine."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds on the machine's monotonic clock, which all its processes share."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        import asyncio

        await asyncio.sleep(seconds)


async def first_of(clock: Clock, seconds: float, event: "asyncio.Event") -> bool:
    """Wait for an event, at most so long; return whether it came.

    Not by `asyncio.wait_for`, which is not on this clock and in Python 3.11 may swallow a
    cancellation that comes together with the event: then whoever waits would never end.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    waits = loop.create_task(event.wait()), loop.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return event.is_set()
