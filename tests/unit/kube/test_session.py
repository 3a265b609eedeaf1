"""A session that ends leaves no connection behind, whatever was under way on it."""

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("kubernetes_asyncio", reason="needs roost[kube]")

from kubernetes_asyncio.client import Configuration

from roost.kube.base.pki import Authority
from roost.kube.base.session import Session

LIMIT_S = 20.0


@contextmanager
def silent_server(folder: Path) -> Iterator[tuple[Configuration, threading.Event]]:
    """Serve TLS, read a request, and answer nothing, not even that the connection ends."""
    authority = Authority("test")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.server("test", ["127.0.0.1"]).write(folder, "server"))
    asked, over = threading.Event(), threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(LIMIT_S)

    def serve() -> None:
        with listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as line:
            line.recv(1)
            asked.set()
            over.wait(LIMIT_S)

    serving = threading.Thread(target=serve)
    serving.start()
    configuration = Configuration()
    configuration.host = f"https://127.0.0.1:{listening.getsockname()[1]}"
    trusted = folder / "authority.pem"
    trusted.write_bytes(authority.certificate)
    configuration.ssl_ca_cert = str(trusted)
    try:
        yield configuration, asked
    finally:
        over.set()
        serving.join()
        listening.close()


def test_a_request_given_up_half_way_leaves_no_connection(tmp_path: Path) -> None:
    async def body(configuration: Configuration, asked: threading.Event) -> None:
        session = Session(configuration, 10)
        waiting = asyncio.create_task(session.send("GET", "/", {}))
        assert await asyncio.to_thread(asked.wait, LIMIT_S)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await session.close()

    gc.collect()  # what others have left is not ours to tell
    with warnings.catch_warnings(record=True) as said, silent_server(tmp_path) as (where, asked):
        warnings.simplefilter("always")
        asyncio.run(body(where, asked))
        gc.collect()
    assert [str(each.message) for each in said] == []
