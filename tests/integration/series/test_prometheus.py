"""A real Prometheus as a reader of series, and one that is broken."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from roost.base.clock import RealClock
from roost.base.errors import InvalidRequest, SeriesUnavailable
from roost.model.series import HOUR_MS, MINUTE_MS, Resolution, Subject
from roost.series import prometheus
from roost.series.prometheus import PrometheusSeries
from tests.conformance.series import points

WEB = Subject("vm", 'vm-"web"')
QUERIES = {"cpu_milli": 'cpu{vm="$name"}', "disk_read_bytes_per_s": 'rate(read{vm="$name"}[1m])'}
#: Readings that there are, one for each 15 s up to about now.
COUNT = 120
BEGIN = RealClock().wall_ms() // (5 * MINUTE_MS) * 5 * MINUTE_MS - 40 * MINUTE_MS
MOMENTS = range(BEGIN, BEGIN + COUNT * 15_000, 15_000)
END = MOMENTS.stop


def cpu(at_ms: int) -> int:
    return 1000 + at_ms // 15_000 % 40


class Exporter(BaseHTTPRequestHandler):
    """Tells the readings of the next moment each time that it is asked."""

    moments = iter(MOMENTS)
    done = Event()

    def do_GET(self) -> None:
        name = WEB.name.replace('"', '\\"')
        lines = []
        if (at := next(self.moments, None)) is None:
            self.done.set()
        else:
            lines += [f'cpu{{vm="{name}"}} {cpu(at)} {at}', f'cpu{{vm="other"}} {2 * cpu(at)} {at}']
            lines += [f'read{{vm="{name}"}} {(at - BEGIN) * 2} {at}']
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write("\n".join([*lines, ""]).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus on loopback that has these readings."""
    program = find_prometheus()
    folder = tmp_path_factory.mktemp("prometheus")
    exporter = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    Thread(target=exporter.serve_forever, daemon=True).start()
    target = f"127.0.0.1:{exporter.server_address[1]}"
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 50ms, scrape_timeout: 50ms}\n"
        f"scrape_configs: [{{job_name: vms, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [
            program, f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
            "--log.level=error",
        ]
    )  # fmt: skip
    try:
        assert Exporter.done.wait(60), "Prometheus has not read everything after a minute"
        yield f"http://{address}"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        exporter.shutdown()
        exporter.server_close()


def find_prometheus() -> Path:
    """Return the program: of the PATH, or as `make parts` has put it."""
    cache = Path(os.environ.get("ROOST_CACHE") or Path.home() / ".cache" / "roost")
    chosen = os.environ.get("ROOST_PROMETHEUS") or shutil.which("prometheus")
    path = Path(chosen) if chosen else cache / "prometheus" / "usr" / "bin" / "prometheus"
    if not os.access(path, os.X_OK):
        pytest.skip("prometheus is not installed: make parts")
    return path


def read(url: str, **given: object) -> list[tuple[int, float]]:
    figure = str(given.pop("figure", "cpu_milli"))
    reader = PrometheusSeries(url, QUERIES)
    asked = reader.read(WEB, BEGIN, END, figures=[figure], **given)  # type: ignore[arg-type]
    return points(asyncio.run(asked), figure)


def test_readings_are_those_of_the_one_that_was_asked_for(url: str) -> None:
    assert read(url) == [(at, cpu(at)) for at in MOMENTS]


def test_rates_are_asked_for_as_rates(url: str) -> None:
    found = read(url, figure="disk_read_bytes_per_s")
    assert {round(value) for _, value in found[8:]} == {2000}


def test_a_long_span_takes_several_questions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(url)
    monkeypatch.setattr(prometheus, "MOST_POINTS", 7)
    assert read(url) == whole


def test_roll_ups_are_asked_for_as_such(url: str) -> None:
    found = read(url, figure="cpu_milli.max", resolution=Resolution.FIVE_MINUTES)
    assert found[1][0] == BEGIN + 5 * MINUTE_MS
    # Prometheus counts a bucket from behind: the reading at its end is in it.
    first = BEGIN + 5 * MINUTE_MS
    inside = [cpu(at) for at in range(first, first + 5 * MINUTE_MS + 1, 15_000)]
    assert found[1][1] == max(inside)
    assert [at for at, _ in found] == list(range(BEGIN, END, 5 * MINUTE_MS))


def test_a_query_that_gives_several_series_is_said(url: str) -> None:
    reader = PrometheusSeries(url, {"cpu_milli": "cpu"})
    with pytest.raises(SeriesUnavailable, match="2 series"):
        asyncio.run(reader.read(WEB, BEGIN, BEGIN + HOUR_MS))


def test_a_query_that_is_refused_is_said(url: str) -> None:
    reader = PrometheusSeries(url, {"cpu_milli": "cpu{"})
    with pytest.raises(SeriesUnavailable, match=r"refuses 'cpu\{'"):
        asyncio.run(reader.read(WEB, BEGIN, BEGIN + HOUR_MS))


def test_what_has_no_series_is_empty(url: str) -> None:
    reader = PrometheusSeries(url, QUERIES)
    assert len(asyncio.run(reader.read(Subject("vm", "x"), BEGIN, BEGIN + HOUR_MS))) == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b'HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{"status":"success"}',
        b'HTTP/1.1 503 no\r\ncontent-length: 2\r\n\r\n{}',
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(17 * 2**20),
    ],
    ids=["nothing", "no JSON", "no data", "no status", "too much"],
)  # fmt: skip
def test_a_broken_prometheus_says_so(answer: bytes) -> None:
    async def story() -> None:
        gone: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            with suppress(ConnectionError):
                writer.write(answer)
                await writer.drain()
            writer.close()
            gone.append(writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            series = PrometheusSeries(f"http://127.0.0.1:{port}", QUERIES)
            with pytest.raises(SeriesUnavailable):
                await series.read(WEB, BEGIN, BEGIN + HOUR_MS)
            while not gone:
                await asyncio.sleep(0)
            with suppress(ConnectionError):
                await gone[0].wait_closed()

    asyncio.run(story())


def test_one_that_is_silent_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_S", 0.2)

    async def story() -> None:
        gone: list[asyncio.StreamWriter] = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            gone.append(writer)

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            series = PrometheusSeries(f"http://127.0.0.1:{port}", QUERIES)
            with pytest.raises(SeriesUnavailable, match="does not answer"):
                await series.read(WEB, BEGIN, BEGIN + HOUR_MS)
            while not gone:
                await asyncio.sleep(0)
            with suppress(ConnectionError):
                await gone[0].wait_closed()

    asyncio.run(story())


@pytest.mark.parametrize("url", ["", "localhost:9090", "ftp://x", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        PrometheusSeries(url)
