"""The server: its address, TLS, stopping while work is under way, and the page of documents."""

import asyncio
import re
import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from roost.api.app import build_app
from roost.api.server import bind, build_server
from roost.base.clock import RealClock
from roost.base.errors import Unavailable
from roost.base.ids import IdSource
from tests.api.conftest import Site
from tests.api.planes import small_plane, token
from tests.api.serving import TIMEOUT_S, serving

VM = {"name": "web", "demand": {"cpu": 1, "memory": "1GiB"}}


def test_an_address_in_use_is_an_error_of_roost() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}") as caught:
            bind("127.0.0.1", port)
    assert caught.value.details["port"] == port


def test_an_address_of_nobody_here_is_an_error_of_roost() -> None:
    with pytest.raises(Unavailable, match="cannot listen"):
        bind("192.0.2.1", 0)


@pytest.mark.parametrize("padding", [0, 100_000], ids=["short cut", "long way"])
def test_a_request_under_way_is_answered_before_the_server_stops(padding: int) -> None:
    async def run() -> None:
        async with small_plane() as plane, serving(plane) as running:
            content = b'{"name":"a","demand":{"cpu":1,"memory":1}}' + b" " * padding
            plane.store.hold()
            asking = asyncio.ensure_future(running.ask("POST", "/api/v1/vms", content=content))
            async with asyncio.timeout(TIMEOUT_S):
                await plane.store.waits()
                running.server.should_exit = True
                while running.server.servers[0].is_serving():
                    await asyncio.sleep(0.01)
                plane.store.let_go()
                response = await asking
            assert (response.status_code, response.headers["connection"]) == (201, "close")

    asyncio.run(run())


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 and return it with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", str(key), "-out", str(cert), "-days", "1"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_tls_serves_both_roads(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)

    async def run() -> None:
        async with small_plane() as plane:
            clock = RealClock()
            app = build_app(plane, clock=clock, ids=IdSource(clock.wall_ms))
            server = build_server(app, plane, "127.0.0.1", 0, tls_cert=cert, tls_key=key)
            task = asyncio.ensure_future(server.serve())
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await server.wait_up()
                assert server.url == f"https://127.0.0.1:{server.port}"
                trust = ssl.create_default_context(cafile=str(cert))
                async with httpx.AsyncClient(base_url=server.url, verify=trust) as client:
                    headers = {"Authorization": f"Bearer {token('admin')}"}
                    made = await client.post("/api/v1/vms", json=VM, headers=headers)
                    seen = await client.get("/api/v1/vms/web", headers=headers)
                assert (made.status_code, seen.status_code) == (201, 200)
            finally:
                server.should_exit = True
                await task

    asyncio.run(run())


def test_the_page_of_documents_needs_nothing_from_elsewhere(site: Site) -> None:
    response = site.ask("GET", "/api/v1/docs", role=None)
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in response.headers["content-security-policy"]
    assert re.findall(r"(?:https?:)?//[a-z][\w.]+\.\w+", response.text) == []
    assert re.findall(r"""(?:src|href)=["']([^"']+)""", response.text) == ["openapi.json"]
    assert site.ask("GET", "/api/v1/openapi.json", role=None).json()["openapi"] == "3.1.0"
