"""One server per module, in a thread of its own, for tests that ask it many small things."""

import asyncio
import threading
from collections.abc import Iterator

import httpx
import pytest
import uvloop

from tests.api.fakeplane import FakePlane, token
from tests.api.serving import TIMEOUT_S, serving

#: Bodies larger than this are refused by the server of these tests.
MOST_BYTES = 64 * 1024


class Site:
    """A running server and a client without a token."""

    def __init__(self, plane: FakePlane, url: str, client: httpx.Client) -> None:
        self.plane = plane
        self.url = url
        self.client = client

    def ask(
        self, method: str, path: str, role: str | None = "admin", **options: object
    ) -> httpx.Response:
        """Send one request with the token of a role."""
        headers = {"Authorization": f"Bearer {token(role)}"} if role else {}
        extra = options.pop("headers", {})
        assert isinstance(extra, dict)
        return self.client.request(method, path, headers=headers | extra, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Run a server for the tests of a module."""
    plane = FakePlane()
    up = threading.Event()
    stop: list[object] = []

    async def run() -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        async with serving(plane, max_body_bytes=MOST_BYTES) as running:
            stop.extend((running.server.url, lambda: loop.call_soon_threadsafe(end.set)))
            up.set()
            await end.wait()

    thread = threading.Thread(target=lambda: uvloop.run(run()), name="server")
    thread.start()
    assert up.wait(TIMEOUT_S)
    url, end = stop
    assert isinstance(url, str)
    assert callable(end)
    try:
        with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
            yield Site(plane, url, client)
    finally:
        end()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
