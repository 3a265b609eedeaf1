"""Notices of clouds over real HTTP: what metadata services say, refuse, garble or do not say."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from roost.worker.notices import notices_of

TOKEN = "a-token-of-this-machine"
ACTION = b'{"action": "terminate", "time": "2030-01-01T00:00:00Z"}'
SPOT = "/latest/meta-data/spot/instance-action"


class Handler(BaseHTTPRequestHandler):
    """A metadata service; its class says what it has."""

    said: tuple[int, bytes] = (404, b"")

    def do_PUT(self) -> None:
        asked = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        is_asked = self.path == "/latest/api/token" and asked is not None
        self._answer(*((200, TOKEN.encode()) if is_asked else (400, b"")))

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        aws = path == SPOT and self.headers.get("X-aws-ec2-metadata-token") == TOKEN
        azure = path == "/metadata/scheduledevents" and self.headers.get("Metadata") == "true"
        allowed = aws or (azure and query.startswith("api-version="))
        self._answer(*(self.said if allowed else (401, b"")))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def metadata(status: int, body: bytes) -> Iterator[str]:
    """Serve a metadata service that has this to say."""
    kind = type("Said", (Handler,), {"said": (status, body)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def is_reclaimed(cloud: str, base: str, folder: Path, *, times: int = 1) -> bool:
    """Ask as a worker does; again where a machine is so busy that an answer comes too late."""
    notices = notices_of(cloud, folder, base)

    async def ask() -> list[bool]:
        return [await each.reclaimed() for each in notices]

    return any(any(asyncio.run(ask())) for _ in range(times))


def events(*kinds: object) -> bytes:
    found = [{"EventId": "1", "EventType": kind, "Resources": ["vm"]} for kind in kinds]
    return json.dumps({"DocumentIncarnation": 1, "Events": found}).encode()


@pytest.mark.parametrize(
    ("cloud", "status", "body", "reclaimed"),
    [
        pytest.param("aws", 200, ACTION, True, id="aws: to be taken away"),
        pytest.param("aws", 404, b"", False, id="aws: nothing announced"),
        pytest.param("aws", 500, b"broken", False, id="aws: broken"),
        pytest.param("azure", 200, events("Preempt"), True, id="azure: preempted"),
        pytest.param("azure", 200, events("Reboot", "Terminate"), True, id="azure: terminated"),
        pytest.param("azure", 200, events("Freeze", "Reboot"), False, id="azure: stays"),
        pytest.param("azure", 200, events(), False, id="azure: nothing announced"),
        pytest.param("azure", 200, events(7), False, id="azure: of another shape"),
        pytest.param("azure", 200, b"<html>Preempt</html>", False, id="azure: no JSON"),
        pytest.param("azure", 500, b"", False, id="azure: broken"),
    ],
)
def test_a_cloud_s_own_word_is_what_counts(
    cloud: str, status: int, body: bytes, reclaimed: bool, tmp_path: Path
) -> None:
    with metadata(status, body) as base:
        assert is_reclaimed(cloud, base, tmp_path, times=20 if reclaimed else 1) is reclaimed


@pytest.mark.parametrize("cloud", ["aws", "azure", ""])
def test_where_no_service_answers_the_file_is_still_looked_at(cloud: str, tmp_path: Path) -> None:
    with metadata(404, b"") as base:
        pass  # nobody listens there any more
    assert not is_reclaimed(cloud, base, tmp_path)
    (tmp_path / "notice").touch()
    assert is_reclaimed(cloud, base, tmp_path)
