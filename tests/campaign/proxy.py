"""A network that can fail: gates on loopback, each in front of one control plane for one visitor.

    agent or client -> gate -> `roost serve`

A gate passes everything on, late if it is told so. Shut, it takes what comes and passes on nothing,
in both directions or in one, and does not say so: a silent partition. What it holds back goes on
when it opens, as TCP sends again after a partition, so messages arrive that are long out of date.
One thread and one event loop serve all gates.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

T = TypeVar("T")

Way = Literal["up", "down"]  # up: towards the control plane
WAYS: tuple[Way, Way] = ("up", "down")

_CHUNK = 65_536
_PATIENCE_S = 30.0
#: Closing a socket that lingers for no time resets the connection.
_NO_LINGER = struct.pack("ii", 1, 0)


class Gate:
    """One way to a control plane. Made by `Network.gate`; open until told otherwise."""

    def __init__(self, network: "Network", port: int) -> None:
        self._network = network
        self._port = port  # of the control plane; it may be down
        self._delay_s = 0.0
        self._open = {way: asyncio.Event() for way in WAYS}
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.passed = 0  # connections

    # From any thread

    def shut(self, *ways: Way) -> None:
        """Pass nothing on in these directions; in both, if none is named."""
        self._network.do(lambda: [self._open[way].clear() for way in ways or WAYS])

    def slow(self, delay_s: float) -> None:
        """Let everything that passes come late."""
        self._network.do(lambda: setattr(self, "_delay_s", delay_s))

    def open(self) -> None:
        """Pass on everything at once, also what was held back."""

        def open_all() -> None:
            self._delay_s = 0.0
            for event in self._open.values():
                event.set()

        self._network.do(open_all)

    def reset(self) -> None:
        """Break every connection; what was held back is lost."""
        self._network.do(self._reset)

    # On the network's loop

    async def start(self) -> asyncio.Server:
        """Listen on a port that is free."""
        for event in self._open.values():
            event.set()
        server = await asyncio.start_server(self._visited, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    def _reset(self) -> None:
        for writer in self._writers:
            _reset(writer)

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._open["up"].wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            _reset(writer)  # nobody listens there
            self._writers.discard(writer)
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        self.passed += 1
        pumps = [
            asyncio.create_task(self._pump("up", reader, far_writer)),
            asyncio.create_task(self._pump("down", far_reader, writer)),
        ]
        try:
            # Neither HTTP nor WebSockets go on when one side has closed.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the network is closed
        finally:
            for pump in pumps:
                pump.cancel()
            try:
                await asyncio.gather(*pumps, return_exceptions=True)
            finally:  # the network may be closed just now
                for each in (writer, far_writer):
                    each.close()
                    self._writers.discard(each)

    async def _pump(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()
            # That somebody has hung up is news too, and news does not pass a gate that is shut.
            await self._open[way].wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


class Network:
    """All gates of a run. Use it as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="network")
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._await(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive()
        self._loop.close()

    def gate(self, port: int) -> Gate:
        """Open a new way to a port."""

        async def make() -> Gate:
            gate = Gate(self, port)
            self._servers.append(await gate.start())
            return gate

        return self._await(make())

    def do(self, change: Any) -> None:
        """Change something on the loop, and return when it is done."""

        async def done() -> None:
            change()

        self._await(done())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()
        await asyncio.sleep(0)  # transports that were closed say so on the next turn
