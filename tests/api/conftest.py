"""One server per module, in a thread of its own, for tests that ask it many small things."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest
import uvloop

from roost.base.clock import RealClock
from tests.api.planes import Players, small_plane, token
from tests.api.serving import TIMEOUT_S, Running, serving

#: Bodies larger than this are refused by the server of these tests.
MOST_BYTES = 64 * 1024


class Site:
    """A running server with hosts that are played, and a client without a token."""

    def __init__(
        self,
        running: Running,
        players: Players,
        loop: asyncio.AbstractEventLoop,
        client: httpx.Client,
    ) -> None:
        self.url = running.server.url
        self.players = players
        self.client = client
        self._loop = loop

    def ask(
        self, method: str, path: str, role: str | None = "admin", **options: object
    ) -> httpx.Response:
        """Send one request with the token of a role."""
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {}
        extra = options.pop("headers", {})
        assert isinstance(extra, dict)
        return self.client.request(method, path, headers=headers | extra, **options)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Wait until the hosts have done all they were told, and have said so."""
        self._run(self.players.settle())

    def pause(self) -> None:
        """Let the hosts do nothing until the next `settle`."""
        self._run(self.players.pause())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Run a server for the tests of a module."""
    up = threading.Event()
    begun: list[tuple[Running, Players, asyncio.AbstractEventLoop, Callable[[], None]]] = []

    async def run() -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        async with small_plane() as plane, serving(plane, max_body_bytes=MOST_BYTES) as running:
            players = Players(plane.plane, RealClock())
            await players.connect()
            playing = asyncio.create_task(players.play())
            begun.append((running, players, loop, lambda: loop.call_soon_threadsafe(end.set)))
            up.set()
            await end.wait()
            playing.cancel()

    thread = threading.Thread(target=lambda: uvloop.run(run()), name="server")
    thread.start()
    assert up.wait(6 * TIMEOUT_S)  # kernels may have to be compiled
    running, players, loop, end = begun[0]
    try:
        with httpx.Client(base_url=running.server.url, timeout=TIMEOUT_S) as client:
            yield Site(running, players, loop, client)
    finally:
        end()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
