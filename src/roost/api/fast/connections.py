"""The HTTP connections of one server: who has shown no token yet, and who keeps it waiting.

A stranger is a connection on which no request had a good token, or whose TLS handshake is not over.
Strangers are bounded by address, and all connections together by what the process may open; the
oldest stranger makes room for who comes next, at once if it has sent half a request or half a
handshake: so thousands of those keep nobody out, however quickly they come back, and thousands of
agents behind one address are no strangers. A look at every
connection now and then ends those that wait too long: nothing of that costs a request any time.
"""

import asyncio
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from roost.api.limits import Limits

log = logging.getLogger("roost.api")

#: A stranger may be so young that its first request is still on the way; then it is let be.
_YOUNG_S = 1.0
#: Strangers that are looked at, the oldest first, for one that has sent half a request.
_HALVES_AMONG = 64
#: Of all connections that may be open, one in so many may be a young handshake.
_FEW_OF = 4
#: Connections that are looked at in one turn of the event loop.
_AT_ONCE = 256
#: Authenticated connections that are looked at for one to end when there is no room.
_LOOKED_AT = 64
#: Seconds between two lines of the log about connections that were ended or refused.
_LOG_S = 10.0


class Watched(Protocol):
    """A connection as this module sees it."""

    @property
    def address(self) -> str:
        """Return where it comes from."""

    @property
    def idle(self) -> bool:
        """Return whether no request is under way."""

    @property
    def shakes(self) -> bool:
        """Return whether its TLS handshake is under way."""

    @property
    def is_half(self) -> bool:
        """Return whether a handshake, or the head of a request, has begun and is not whole yet."""

    def look(self, now: float) -> None:
        """End the connection if its client keeps the server waiting for too long."""

    def end(self) -> None:
        """End the connection at once."""


class Connections:
    """Keeps strangers and slow clients bounded."""

    def __init__(self, limits: Limits, *, by_address: bool = True) -> None:
        self.limits = limits
        self.handshakes = 0  # of TLS that are under way: open, and nobody's requests yet
        self._by_address = by_address and limits.strangers > 0
        self._all: dict[Watched, None] = {}
        self._strangers: dict[Watched, float] = {}  # since when, oldest first
        self._addresses: dict[str, dict[Watched, None]] = {}  # of strangers
        self._ended = 0
        self._logged_at = 0.0
        self._looking: asyncio.Task[None] | None = None

    # What a connection says of itself

    def admit(self, connection: Watched, open_now: int) -> bool:
        """Take in a new connection beside so many open ones and the handshakes that are under way;
        return False when there is no room for it.
        """
        now = asyncio.get_running_loop().time()
        known = self._addresses.setdefault(connection.address, {})
        known[connection] = None
        self._strangers[connection] = now
        self._all[connection] = None
        most = self.limits.strangers
        if self._by_address and len(known) > most:
            return self._make_room(connection, iter(known), now, f"from {connection.address}")
        if self.limits.connections and open_now + self.handshakes > self.limits.connections:
            # Few handshakes are of those who come at once, and not of those who keep us waiting:
            # an idle connection is less of a loss.
            few = self.handshakes * _FEW_OF <= self.limits.connections
            strangers = iter(self._strangers)
            made = self._make_room(connection, strangers, now, "in all", spare_young=few)
            return made or self._end_idle()
        return True

    def known(self, connection: Watched) -> None:
        """Count a connection as a stranger no more: a request on it had a good token."""
        if self._strangers.pop(connection, None) is None:
            return
        same = self._addresses[connection.address]
        del same[connection]
        if not same:
            del self._addresses[connection.address]

    def lost(self, connection: Watched) -> None:
        """Forget a connection that has ended, or that is an agent's now."""
        self.known(connection)
        self._all.pop(connection, None)

    # Making room

    def _make_room(
        self,
        newcomer: Watched,
        oldest_first: Iterator[Watched],
        now: float,
        where: str,
        *,
        spare_young: bool = False,
    ) -> bool:
        """End another stranger for a newcomer, if one may be; `spare_young` handshakes."""
        some = [each for each in islice(oldest_first, _HALVES_AMONG) if each is not newcomer]
        old_s = min(_YOUNG_S, self.limits.request_s / 4)

        def is_old(connection: Watched) -> bool:
            return now - self._strangers[connection] >= old_s

        # Whoever is honest sends a head at once and whole, so a half one need not be old. A
        # handshake takes two ways there and back.
        halves = (each for each in some if each.is_half)
        if spare_young:
            halves = (each for each in halves if not each.shakes or is_old(each))
        ended = next(halves, None)
        if ended is None and some and is_old(some[0]):
            ended = some[0]
        if ended is not None:
            self.known(ended)
            ended.end()
        self._ended += 1
        if now - self._logged_at >= _LOG_S or not self._logged_at:
            log.warning(
                "too many connections without a good token %s: %d were ended or refused",
                where,
                self._ended,
            )
            self._ended, self._logged_at = 0, now
        return ended is not None

    def _end_idle(self) -> bool:
        for connection, _ in zip(self._all, range(_LOOKED_AT), strict=False):
            if connection.idle and connection not in self._strangers:
                del self._all[connection]
                connection.end()
                return True
        return False

    # Looking

    def start(self) -> None:
        """Begin to look at the connections."""
        self._looking = asyncio.create_task(self._look())

    def stop(self) -> None:
        """End the looks at the connections."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        pause = max(0.05, min(1.0, self.limits.request_s / 8, self.limits.stalled_s / 8))
        waited, before = 0.0, loop.time()
        while True:
            await asyncio.sleep(pause)
            # Time in which this process did not run is nobody's fault: its clients were ready.
            now = loop.time()
            waited, before = waited + min(now - before, 2 * pause), now
            for number, connection in enumerate(list(self._all)):
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
                try:
                    connection.look(waited)
                except Exception:  # a loop must outlive its mistakes
                    log.exception("a connection could not be looked at")
