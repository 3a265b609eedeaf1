"""A proxy before PostgreSQL that loses the connection at the worst moment: while it commits."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

#: Told how many commits have come by; answers "pass", "before", "during" or "after".
When = Callable[[int], str]


#: The name of a prepared statement, and by its last word the one that keeps a batch of creates.
_WHOLE = re.compile(rb"(__asyncpg_stmt_\w+__)\0[^\0]*somebody_lost")


class Cutter:
    """Forwards bytes; cuts before the server hears of a commit, during it, or after its answer."""

    def __init__(self, host: str, port: int, when: When) -> None:
        self._host, self._port, self._when = host, port, when
        self.commits = 0
        self.cut: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up, down = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        cutting = asyncio.Event()
        try:
            to_client = asyncio.create_task(self._copy(up, writer, cutting))
            await self._watch(reader, down, to_client, cutting)
        finally:
            to_client.cancel()
            await asyncio.gather(to_client, return_exceptions=True)
            for each in (down, writer):
                each.transport.abort()

    async def _copy(
        self, up: asyncio.StreamReader, writer: asyncio.StreamWriter, cutting: asyncio.Event
    ) -> None:
        while data := await up.read(65536):
            if cutting.is_set():
                return  # the server has answered the commit, and nobody will hear it
            writer.write(data)
        writer.close()

    async def _watch(
        self,
        reader: asyncio.StreamReader,
        down: asyncio.StreamWriter,
        to_client: "asyncio.Task[None]",
        cutting: asyncio.Event,
    ) -> None:
        wholes: set[bytes] = set()  # names of prepared statements that commit by themselves
        while data := await reader.read(65536):
            wholes.update(_WHOLE.findall(data))
            bound = data[:1] == b"B" and any(name in data[:64] for name in wholes)
            if bound or b"COMMIT" in data:
                self.commits += 1
                how = self._when(self.commits)
                if how != "pass":
                    self.cut.append(how)
                if how == "before":
                    return
                if how == "during":
                    down.write(data)
                    await down.drain()
                    return
                if how == "after":
                    cutting.set()
                    down.write(data)
                    await to_client
                    return
            down.write(data)


@asynccontextmanager
async def cutting_proxy(url: str, when: When) -> AsyncIterator[tuple[str, Cutter]]:
    """Run a proxy before the server of a URL; yield the URL through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    cutter = Cutter(parts.hostname, parts.port, when)
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield url.replace(f":{parts.port}/", f":{port}/"), cutter
    finally:
        server.close()
        await server.wait_closed()
