"""QEMU driven by hand: what anybody's script would do with the same command line.

A boot is spawned, greeted and told `cont`. A migration has QEMU's defaults: the target goes on by
itself, nothing is written down, nobody is asked. All of it is timed from the spawn, for ours spawns
as well.
"""

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.agent.agents import pass_time
from benchmarks.agent.qmp import PATIENCE_S, Conversation
from benchmarks.api.verifying import Wrong
from roost.agent.drivers.qemu.command import CONSOLE
from roost.agent.drivers.qemu.monitor import SOCKET

_LOOK_S = 0.001
_POLL_S = 0.01  # how often the migration is asked about


class HandVM:
    """One QEMU of this process, in a folder of its own. Close it to end it."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        folder.mkdir(parents=True)
        self.console = folder / CONSOLE
        self._log = folder / "qemu.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                argv, cwd=folder, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self.qmp = Conversation(folder, SOCKET, self._check_alive)
        except BaseException:
            self._end()
            raise

    def execute(self, command: str, **arguments: Any) -> Any:
        """Return QEMU's answer."""
        return self.qmp.execute(command, **arguments)

    def close(self) -> None:
        """End QEMU."""
        self.qmp.close()
        self._end()

    def _check_alive(self) -> None:
        if self._process.poll() is not None:
            raise Wrong(f"by hand QEMU ended: {self._log.read_text(errors='replace')[-1000:]}")

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def boot(argv: Sequence[str], folder: Path) -> tuple[HandVM, float, float]:
    """Return a guest that runs, when its spawn began and when it ran: QEMU has answered `cont`."""
    began = time.perf_counter()
    vm = HandVM(argv, folder)
    vm.execute("cont")
    ran = time.perf_counter()
    status = vm.execute("query-status")["status"]
    if status != "running":
        vm.close()
        raise Wrong(f"by hand the guest is {status}")
    return vm, began, ran


@dataclass(frozen=True, slots=True)
class HandMove:
    """What one migration took."""

    total_s: float  # from the spawn of the target until the source says completed
    ready_s: float  # of it until the target waited
    stop_to_resume_s: float  # by the events of both
    downtime_ms: float  # QEMU's own figure


def move(vm: HandVM, argv: Sequence[str], folder: Path, bandwidth: int) -> tuple[HandVM, HandMove]:
    """Move a guest to a new QEMU; returns the new one, the old one is ended."""
    vm.qmp.forget_events()
    began = time.perf_counter()
    target = HandVM([*(word for word in argv if word != "-S"), "-incoming", "defer"], folder)
    try:
        target.execute("migrate-incoming", uri="tcp:127.0.0.1:0")
        port = _port(target)
        ready = time.perf_counter()
        vm.execute("migrate-set-parameters", **{"max-bandwidth": bandwidth})
        vm.execute("migrate", uri=f"tcp:127.0.0.1:{port}")
        while (told := vm.execute("query-migrate"))["status"] != "completed":
            if told["status"] in ("failed", "cancelled"):
                raise Wrong(f"by hand the migration {told}")
            if time.perf_counter() - began > PATIENCE_S:
                raise Wrong(f"by hand the migration does not end: {told}")
            pass_time(_POLL_S)
        while (status := target.execute("query-status")["status"]) == "inmigrate":
            pass_time(_LOOK_S)
        done = time.perf_counter()
        if status != "running":
            raise Wrong(f"by hand the moved guest is {status}")
        downtime = downtime_ms(vm.qmp)
        gap = target.qmp.event_s("RESUME") - vm.qmp.event_s("STOP")
    except BaseException:
        target.close()
        raise
    vm.close()
    return target, HandMove(done - began, ready - began, gap, downtime)


def downtime_ms(qmp: Conversation) -> float:
    """Return QEMU's own figure of a migration that is complete; it is there a moment later."""
    while not (told := qmp.execute("query-migrate")).get("total-time"):
        pass_time(_LOOK_S)
    return float(told["downtime"])


def _port(target: HandVM) -> int:
    """Return where a target waits that was told to take any port."""
    for address in target.execute("query-migrate").get("socket-address", ()):
        return int(address["port"])
    raise Wrong("by hand the target does not say where it waits")
