"""Joining, against a tiny HTTP server on loopback."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from roost.agent.store import FolderStore
from roost.agent.talk.join import join, join_once
from roost.base.errors import Forbidden, Unauthorized, Unavailable


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = self.headers["Authorization"]
        status = {"Bearer good": 201, "Bearer other-host": 403, "Bearer busy": 503}.get(token, 401)
        assert self.path == "/api/v1/agents/join"
        self.server.asked.append((token, body))
        answer = json.dumps({"host": body["host"], "credential": "roost_c_1"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.asked = []
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def address(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_a_token_is_traded_once_for_a_credential(tmp_path: Path, server) -> None:
    store = FolderStore(tmp_path, boot="")
    for _ in range(2):
        asyncio.run(join_once(store, (address(server),), "host-1", "good"))
    assert store.credential() == "roost_c_1"
    assert server.asked == [("Bearer good", {"host": "host-1"})]


def test_the_next_server_is_asked_when_one_does_not_answer(server) -> None:
    servers = ("http://127.0.0.1:1", address(server))
    assert asyncio.run(join(servers, "host-1", "good")) == "roost_c_1"


@pytest.mark.parametrize(
    ("token", "error"),
    [("used", Unauthorized), ("other-host", Forbidden), ("busy", Unavailable)],
)
def test_a_refusal_says_what_to_do(server, token: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        asyncio.run(join((address(server),), "host-1", token))
