"""Agent processes: `roost agent` as anybody would start it, and the guests that outlive it.

An agent that stops leaves its guests running, so whoever ends a host here ends its QEMU processes
too, each by its id and only if it runs in the host's folder.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.api.serving import REPOSITORY, Serving
from benchmarks.api.verifying import Wrong

_ROOST = (sys.executable, "-c", "from roost.cli.main import main; main()")
_STOP_S = 30.0


@dataclass(slots=True)
class AgentProcess:
    """A process of one agent or several, and their folder."""

    process: subprocess.Popen[bytes]
    name: str
    folder: Path

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self.process.pid

    def check(self) -> None:
        """Raise if the process has ended."""
        if self.process.poll() is not None:
            log = (self.folder / "log").read_text(errors="replace")[-2000:]
            raise Wrong(f"agent {self.name} ended with {self.process.returncode}: {log}")

    def stop(self) -> None:
        """End the process in order."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Wrong(f"agent {self.name} did not stop within {_STOP_S:.0f} s") from None


@contextmanager
def agent(
    serving: Serving, name: str, folder: Path, options: Sequence[str]
) -> Iterator[AgentProcess]:
    """Run an agent for the length of a block; nothing of it is left afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["agent", "--name", name, "--server", serving.url, "--data", str(folder / "data")]
    environment = os.environ | {"ROOST_CONTEXT": str(serving.folder / "context.json")}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*_ROOST, *words, *options], stdout=log, stderr=log, cwd=REPOSITORY, env=environment
        )
    running = AgentProcess(process, name, folder)
    try:
        yield running
    finally:
        try:
            running.stop()
        finally:
            end_processes_in(folder)


def processes_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder or below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended, or is another user's
                if (entry / "cwd").readlink().is_relative_to(folder):
                    found.append(int(entry.name))
    return found


def end_processes_in(folder: Path) -> None:
    """End what still works in a folder."""
    left = processes_in(folder)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for("processes to end", lambda: not processes_in(folder), 10.0, every_s=0.02)


def wait_for(
    what: str, condition: Callable[[], bool], within_s: float, *, every_s: float = 0.05
) -> float:
    """Wait until something holds; return how long that took."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > within_s:
            raise Wrong(f"waited {within_s:.0f} s for {what}")
        pass_time(every_s)
    return time.perf_counter() - began


def pass_time(seconds: float) -> None:
    """Let time pass."""
    threading.Event().wait(seconds)
