"""TLS handshakes under way, bounded in time and number as half requests are.

    accept -> a place among the strangers -> handshake -> the HTTP connection takes its place

A server of asyncio accepts by itself and tells of a connection only when its handshake is over, so
that those who never finish one would be counted by nobody, for a minute each. Here connections are
accepted one by one: each has an address from its first moment on, and `Connections` may end it.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from roost.api.fast.connections import Connections
from roost.api.fast.httpprotocol import LeanHttp

log = logging.getLogger("roost.api")

#: Seconds after which the event loop gives a handshake up, should nobody have looked at it.
_LAST_RESORT_S = 60.0
#: Seconds to wait when no file is left for a connection.
_NO_FILES_S = 1.0


class Handshake:
    """A connection whose client has not finished its handshake."""

    idle = False
    shakes = is_half = True  # whoever is honest goes on at once

    def __init__(self, connection: socket.socket, address: str, most_s: float) -> None:
        self.connection, self.address = connection, address
        self._most_s = most_s
        self._since: float | None = None

    def look(self, now: float) -> None:
        """End the connection if its client takes too long."""
        if self._since is None:
            self._since = now
        elif now - self._since >= self._most_s:
            self.end()

    def end(self) -> None:
        """End the connection at once: the handshake fails as if the client had gone."""
        with suppress(OSError):  # it has gone
            self.connection.shutdown(socket.SHUT_RDWR)


class Handshakes:
    """Accepts the connections of a server with TLS."""

    def __init__(
        self,
        secure: ssl.SSLContext,
        watch: Connections,
        make: Callable[[], asyncio.BaseProtocol],
        others: Callable[[], int],
    ) -> None:
        self._secure, self._watch = secure, watch
        self._make = make  # the protocol of a connection that is secure
        self._others = others  # how many of those are open
        self._under_way: dict[Handshake, asyncio.Task[None]] = {}
        self._accepting: list[asyncio.Task[None]] = []

    def start(self, sockets: Sequence[socket.socket], backlog: int) -> None:
        """Begin to accept."""
        for listening in sockets:
            listening.listen(backlog)
            self._accepting.append(asyncio.create_task(self._accept(listening)))

    async def stop(self) -> None:
        """Accept no more, and end the handshakes that are under way."""
        tasks = [*self._accepting, *self._under_way.values()]
        for handshake in self._under_way:
            handshake.end()
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # it has gone while it waited
            except OSError as error:
                log.error("no connection can be accepted: %s", error)
                await asyncio.sleep(_NO_FILES_S)
                continue
            try:
                self._take(connection, str(address[0]))
            except Exception:  # whatever it is, others must still be let in
                log.exception("a connection with TLS could not be taken in")
                connection.close()

    def _take(self, connection: socket.socket, address: str) -> None:
        handshake = Handshake(connection, address, self._watch.limits.request_s)
        self._watch.handshakes += 1
        admitted = False
        try:
            admitted = self._watch.admit(handshake, self._others())
        finally:
            if not admitted:
                self._watch.handshakes -= 1
                self._watch.lost(handshake)
        if admitted:
            self._under_way[handshake] = asyncio.create_task(self._shake(handshake))
        else:
            connection.close()

    async def _shake(self, handshake: Handshake) -> None:
        def made() -> asyncio.BaseProtocol:
            protocol = self._make()
            cast(LeanHttp, protocol).on_made = lambda: self._over(handshake)
            return protocol

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                made,
                handshake.connection,
                ssl=self._secure,
                ssl_handshake_timeout=max(_LAST_RESORT_S, 2 * self._watch.limits.request_s),
            )
        except OSError as error:
            log.debug("a TLS handshake with %s failed: %s", handshake.address, error)
        except Exception:  # the others' connections must outlive it
            log.exception("a connection with TLS could not be made")
        finally:
            self._over(handshake)

    def _over(self, handshake: Handshake) -> None:
        """Count a handshake no more: its connection has a protocol now, or is lost."""
        if self._under_way.pop(handshake, None) is not None:
            self._watch.handshakes -= 1
            self._watch.lost(handshake)
