"""A first start on a machine: a server that finds nothing compiled answers at once."""

import os
from pathlib import Path

import httpx
import pytest

from tests.system.processes import ROOST, Process, eventually, free_port

pytestmark = pytest.mark.slow


def test_a_server_with_an_empty_cache_is_ready_and_says_what_it_does(tmp_path: Path) -> None:

    url = f"http://127.0.0.1:{free_port()}"
    kept = {key: text for key, text in os.environ.items() if not key.startswith("ROOST_")}
    kept.pop("NUMBA_CACHE_DIR", None)
    server = Process(
        [
            str(ROOST), "serve", "--listen", url.removeprefix("http://"),
            "--data", str(tmp_path / "data"), "--context", str(tmp_path / "context.json"),
        ],
        tmp_path / "serve.log",
        kept | {"ROOST_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    try:

        def ready() -> httpx.Response | None:
            try:
                answer = httpx.get(f"{url}/readyz", timeout=5.0)
            except httpx.TransportError:
                return None
            return answer if answer.status_code == httpx.codes.OK else None

        detail = eventually("the server is ready", ready).json()["detail"]
        assert "kernels are being compiled" in detail
        assert "roost_kernels_compiled 0.0" in httpx.get(f"{url}/metrics").text
        assert "in another process" in (tmp_path / "serve.log").read_text()
    finally:
        server.stop()
