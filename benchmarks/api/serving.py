"""Server processes: `roost serve` as anybody would start it, ended by its process id."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_ROOST = (sys.executable, "-c", "from roost.cli.main import main; main()")
_PATIENCE_S = 180.0  # the first start on a machine compiles kernels
#: Without agents nobody is heard of, and nobody must be missed.
NEVER_OFFLINE = ("--suspect-s", "86000", "--offline-s", "86400")


class ServerFailed(Exception):
    """A server process did not do what it should."""


@dataclass(slots=True)
class Serving:
    """A server process that is ready, or was."""

    process: subprocess.Popen[bytes]
    folder: Path
    url: str
    token: str
    ready_s: float  # from its start until it was ready

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self.process.pid

    @property
    def port(self) -> int:
        """Return where it listens."""
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End it without a word, as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise ServerFailed("the server did not stop within 60 s") from None


def start(
    database: str, folder: Path, options: Sequence[str] = NEVER_OFFLINE, *, port: int = 0
) -> Serving:
    """Start a server and wait until it is ready; it logs to a file in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    context = folder / "context.json"
    context.unlink(missing_ok=True)
    words = ["serve", "--data", str(folder), "--database", database, "--context", str(context)]
    words += ["--listen", f"127.0.0.1:{port}", *options]
    began = time.perf_counter()
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*_ROOST, *words], stdout=log, stderr=log, cwd=REPOSITORY)
    try:
        url, token = _ready(process, context, began)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return Serving(process, folder, url, token, time.perf_counter() - began)


@contextmanager
def running(
    database: str, folder: Path, options: Sequence[str] = NEVER_OFFLINE
) -> Iterator[Serving]:
    """Run a server for the length of a block."""
    serving = start(database, folder, options)
    try:
        yield serving
    finally:
        serving.stop()


def _ready(process: subprocess.Popen[bytes], context: Path, began: float) -> tuple[str, str]:
    while time.perf_counter() - began < _PATIENCE_S:
        if process.poll() is not None:
            log = (context.parent / "log").read_text(errors="replace")[-2000:]
            raise ServerFailed(f"the server ended with {process.returncode}: {log}")
        if context.is_file() and (text := context.read_text()):
            found = json.loads(text)
            if _says_ready(found["server"]):
                return found["server"], found["token"]
        threading.Event().wait(0.01)
    raise ServerFailed(f"the server was not ready within {_PATIENCE_S:.0f} s")


def _says_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
