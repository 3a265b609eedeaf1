"""The clock of one simulated machine: it may run fast or slow, and its wall clock may jump."""

import asyncio

from roost.sim.lives import Life

_EPOCH_MS = 1_700_000_000_000


class Machine:
    """What all processes of one machine share: how its clocks go."""

    def __init__(self, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.rate = rate
        self.offset_s = offset_s  # of the wall clock
        self.began_s = 0.0  # the monotonic clock of a machine begins with its boot


class NodeClock:
    """Implements `Clock` for one life on one machine."""

    def __init__(self, machine: Machine, life: Life) -> None:
        self._machine, self._life = machine, life

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, as this machine has it."""
        return _EPOCH_MS + int((self._now() + self._machine.offset_s) * 1000)

    def monotonic(self) -> float:
        """Return seconds since this machine's clock began."""
        return self._now()

    async def sleep(self, seconds: float) -> None:
        """Wait as long as this machine thinks."""
        # Never nothing: what waits for a rounding error would wait for it for ever.
        await asyncio.sleep(max(1e-6, seconds) / self._machine.rate)
        await self._life.gate()

    def _now(self) -> float:
        return (asyncio.get_running_loop().time() - self._machine.began_s) * self._machine.rate
