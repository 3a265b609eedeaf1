"""A line to the API server that can be cut, frozen, or lose an answer."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from roost.kube.cluster.local import LocalCluster


class Line:
    """Bytes go through it both ways, while it is well."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._open: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.refuses = False
        self.loses_answers = False  # what comes back is dropped, and the connection with it
        self.connections = 0

    def cut(self) -> None:
        """End every connection."""
        for writer in self._open:
            writer.transport.abort()

    def freeze(self) -> None:
        """Let nothing through any more, without a word."""
        self._flows.clear()

    def thaw(self) -> None:
        """Let everything through again."""
        self._flows.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one caller with the server."""
        self.connections += 1
        if self.refuses:
            writer.transport.abort()
            return
        try:
            to_server = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, to_server[1]}
        try:
            await asyncio.gather(
                self._carry(reader, to_server[1], back=False),
                self._carry(to_server[0], writer, back=True),
            )
        finally:
            for each in (writer, to_server[1]):
                self._open.discard(each)
                each.transport.abort()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, back: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flows.wait()
                if back and self.loses_answers:
                    break
                target.write(data)
                await target.drain()
        target.transport.abort()


@asynccontextmanager
async def line_to(cluster: LocalCluster, folder: Path) -> AsyncIterator[tuple[Line, Path]]:
    """Open a line to a cluster's API server, and a kubeconfig that goes over it."""
    at = urlsplit(cluster.state.server)
    assert at.hostname is not None
    assert at.port is not None
    line = Line(at.hostname, at.port)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(line.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = folder / "over-the-line"
    shutil.copy(cluster.kubeconfig, config)
    document = yaml.safe_load(config.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    config.write_text(yaml.safe_dump(document))
    try:
        yield line, config
    finally:
        line.thaw()
        line.cut()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
