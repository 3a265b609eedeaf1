"""A real Prometheus on loopback for tests, with half an hour of readings of one VM among others."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from threading import Event

import httpx
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


def write_blocks(folder: Path, program: Path) -> None:
    """Write the readings as Prometheus keeps them: a scrape that came late would lose some."""
    name = WEB.name.replace('"', '\\"')
    told = {
        f'cpu{{vm="{name}"}}': cpu,
        'cpu{vm="other"}': lambda at: 2 * cpu(at),
        f'read{{vm="{name}"}}': lambda at: (at - BEGIN) * 2,
    }
    lines = []
    for family in ("cpu", "read"):
        lines.append(f"# TYPE {family} unknown")
        for series, value in told.items():
            if series.startswith(family):
                lines += [f"{series} {value(at)} {at / 1000}" for at in MOMENTS]
    (folder / "readings.txt").write_text("\n".join([*lines, "# EOF", ""]))
    subprocess.run(
        [program.with_name("promtool"), "tsdb", "create-blocks-from", "openmetrics",
         folder / "readings.txt", folder / "data"],
        check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture(scope="session")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus on loopback that has these readings."""
    program = find_prometheus()
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text("global: {}\n")
    write_blocks(folder, program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [
            program, f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
            "--storage.tsdb.retention.time=1d", "--log.level=error",
        ]
    )  # fmt: skip
    try:
        wait_until_ready(f"http://{address}/-/ready")
        yield f"http://{address}"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_ready(url: str) -> None:
    """Ask until the server says that it is ready, for a minute at most."""
    wait = Event()
    for _ in range(600):
        try:
            if httpx.get(url, timeout=5.0).status_code == HTTPStatus.OK:
                return
        except httpx.TransportError:
            pass
        wait.wait(0.1)
    raise AssertionError("Prometheus is not ready after a minute")


def find_prometheus() -> Path:
    """Return the program: of the PATH, or as `make parts` has put it."""
    cache = Path(os.environ.get("ROOST_CACHE") or Path.home() / ".cache" / "roost")
    chosen = os.environ.get("ROOST_PROMETHEUS") or shutil.which("prometheus")
    path = Path(chosen) if chosen else cache / "prometheus" / "usr" / "bin" / "prometheus"
    if not all(os.access(each, os.X_OK) for each in (path, path.with_name("promtool"))):
        pytest.skip("prometheus or promtool is not installed: make parts")
    return path
