"""A real server on loopback around a real control plane, and how to ask it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from roost.api.app import build_app
from roost.api.limits import Limits
from roost.api.server import Server, build_server
from roost.base.clock import RealClock
from roost.base.ids import IdSource
from tests.api.planes import SmallPlane, small_plane, token

TIMEOUT_S = 10
#: Tests ask as often as they can, and mostly what is refused.
UNHURRIED = Limits(token_rate=0, address_rate=0, failure_rate=0)


class Count:
    """A meter that remembers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int]] = []

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        self.requests.append((method, route, status))


class Running:
    """A server that runs, and its plane."""

    def __init__(self, plane: SmallPlane, server: Server, client: httpx.AsyncClient) -> None:
        self.plane = plane
        self.server = server
        self.client = client

    async def ask(
        self, method: str, path: str, role: str | None = "admin", **options: Any
    ) -> httpx.Response:
        """Send one request with the token of a role."""
        headers = dict(options.pop("headers", {}))
        if role is not None:
            headers.setdefault("Authorization", f"Bearer {token(role)}")
        return await self.client.request(method, path, headers=headers, **options)


def _client(url: str) -> httpx.AsyncClient:
    # Nothing is verified, and the certificates need not be read for every test.
    return httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, verify=False)


@asynccontextmanager
async def serving(
    plane: SmallPlane | None = None, *, tls: tuple[Path, Path] | None = None, **options: Any
) -> AsyncIterator[Running]:
    """Run a server for the length of the block, around a plane of its own unless one is given.

    `tls`: its certificate and key.
    """
    cert, key = tls or (None, None)
    async with AsyncExitStack() as stack:
        plane = plane or await stack.enter_async_context(small_plane())
        clock = options.pop("clock", None) or RealClock()
        options.setdefault("limits", UNHURRIED)
        app = build_app(plane, clock=clock, ids=IdSource(clock.wall_ms), **options)
        server = build_server(app, plane, "127.0.0.1", 0, tls_cert=cert, tls_key=key)
        task = asyncio.ensure_future(server._serve())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await server.wait_up()
            async with _client(server.url) as client:
                yield Running(plane, server, client)
        finally:
            server.should_exit = True
            async with asyncio.timeout(TIMEOUT_S):
                await task
