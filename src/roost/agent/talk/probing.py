"""The agent's probes: orders of the control plane carried out, within bounds of the agent's own.

An agent probes and is probed only when its operator gave it a probe port, only with agents that the
control plane names, one probe at a time, and for no more than a share of its time: what the control
plane orders beyond that is refused with a reason.
"""

import logging
import re
from dataclasses import dataclass

from roost.agent.talk.probeline import MOST_S, Found, ProbeDoor, ProbeFailed, measure
from roost.base.clock import Clock
from roost.wire.agentlimits import clipped
from roost.wire.agentlink import ProbeInfo, ProbeOrder, ProbeReply, probe_address

log = logging.getLogger(__name__)

#: Seconds of sending and receiving that a host may spend at once, and the share of its time after.
BURST_S, SHARE = 60.0, 0.05
#: What nobody guesses.
_WORD = re.compile(r"[0-9a-f]{32,128}")
_PROBE_OFF = "this host does not probe: its agent was started without --probe-port"


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Where the probe port is, as other agents reach it; port 0: any that is free."""

    address: str
    port: int


class TimeShare:
    """How long a host may still probe: so many seconds at once, which come back slowly."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left_s, self._since_s = BURST_S, clock.monotonic()

    def wait_s(self, cost_s: float) -> float:
        """Return how long it is until so many seconds may be spent; 0: now."""
        now = self._clock.monotonic()
        self._left_s = min(BURST_S, self._left_s + (now - self._since_s) * SHARE)
        self._since_s = now
        return max(0.0, cost_s - self._left_s) / SHARE

    def spend(self, seconds: float) -> None:
        """Count seconds that were spent."""
        self._left_s -= seconds


class Probing:
    """One agent's probes: its port, and what it is ordered to measure."""

    def __init__(self, settings: ProbeSettings | None, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._share = TimeShare(clock)
        self._door = ProbeDoor(clock, self._share.spend)
        self._info: ProbeInfo | None = None
        self._measuring = False

    async def info(self) -> ProbeInfo:
        """Return where other agents reach it; opens the port, at every hello until it succeeds."""
        if self._settings is None:
            return ProbeInfo()
        if self._info is None or not self._info.address:
            self._info = await self._opened(self._settings)
        return self._info

    async def _opened(self, settings: ProbeSettings) -> ProbeInfo:
        host = f"[{settings.address}]" if ":" in settings.address else settings.address
        try:
            port = await self._door.open(settings.address, settings.port)
        except OSError as error:
            why = f"port {settings.port} of {settings.address} cannot be opened: {error}"
            log.error("this host is not probed: %s", why)
            return ProbeInfo(why=clipped(why))
        return ProbeInfo(f"{host}:{port}")

    async def close(self) -> None:
        """Listen no more."""
        await self._door.close()

    async def answer(self, order: ProbeOrder) -> ProbeReply:
        """Carry out an order: let a prober in, or be the prober."""
        found = Found()
        try:
            self._refuse(order)
            if order.address:
                await self._measure(order, found)
            else:
                self._door.expect(order)
        except ProbeFailed as failed:
            return _reply(order.number, found, failed.code, failed.message)
        return _reply(order.number, found)

    def _refuse(self, order: ProbeOrder) -> None:
        """Raise ProbeFailed for what this agent does not do."""
        if self._info is None or not self._info.address:
            why = "" if self._info is None else self._info.why
            raise ProbeFailed("probe_off", why or _PROBE_OFF)
        if not _WORD.fullmatch(order.word):
            raise ProbeFailed("probe_word", "a probe needs a word that nobody guesses")
        if (wait_s := self._share.wait_s(2 * min(order.seconds, MOST_S))) > 0:
            text = f"this host has spent its share of time on probes; again in {wait_s:.0f} s"
            raise ProbeFailed("probe_share", text)

    async def _measure(self, order: ProbeOrder, found: Found) -> None:
        there = probe_address(order.address)
        if there is None:
            raise ProbeFailed("probe_address", f"{order.address!r} is no address of a probe port")
        if self._measuring:
            raise ProbeFailed("probe_busy", "this host measures another way at the moment")
        self._measuring = True
        begun_s = self._clock.monotonic()
        try:
            await measure(order, *there, self._clock, found)
        finally:
            self._measuring = False
            self._share.spend(self._clock.monotonic() - begun_s)


def _reply(number: int, found: Found, code: str = "", message: str = "") -> ProbeReply:
    return ProbeReply(
        number,
        found.round_trip_ms,
        found.median_ms,
        found.out_mbit,
        found.back_mbit,
        code,
        clipped(message),
    )
