"""A real Prometheus on loopback for tests, with half an hour of readings of one VM among others."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from roost.base.clock import RealClock
from roost.model.series import MINUTE_MS, Subject

WEB = Subject("vm", 'vm-"web"')
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


@pytest.fixture(scope="session")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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
