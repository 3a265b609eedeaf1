"""A model control plane behind a real WebSocket on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from roost.parts.access import Principal
from roost.testing.control import ModelControl


class _SocketEnd:
    """The plane's end of a socket: messages and the end of the connection leave in order."""

    peer = "socket"

    def __init__(self) -> None:
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()

    def send(self, data: bytes) -> None:
        self.outbox.put_nowait(data)

    def close(self, code: int, reason: str) -> None:
        self.outbox.put_nowait(None)


@asynccontextmanager
async def serving(control: ModelControl) -> AsyncIterator[str]:
    """Serve on a free port of loopback; yields the address."""

    async def handle(socket: ServerConnection) -> None:
        assert socket.request is not None
        control.credentials.append(socket.request.headers["Authorization"])
        assert socket.request.path == "/api/v1/agents/connect"
        end = _SocketEnd()
        session = control.connect(end, Principal("agent", "agent"))
        sender = asyncio.create_task(_send_all(socket, end))
        try:
            while True:
                data = await socket.recv()
                session.received(data if isinstance(data, bytes) else data.encode())
        except ConnectionClosed:
            pass
        finally:
            session.closed()
            sender.cancel()

    async with serve(handle, "127.0.0.1", 0, compression=None, close_timeout=1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"http://127.0.0.1:{port}"


async def _send_all(socket: ServerConnection, end: _SocketEnd) -> None:
    try:
        while (data := await end.outbox.get()) is not None:
            await socket.send(data)
        await socket.close()
    except ConnectionClosed:
        pass
