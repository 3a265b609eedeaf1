"""The agent's side of fencing: stop recipes on disk, and the guard process that uses them.

The guard (`roost.agent.fencing.guard`) is started in its own session, so it outlives the agent.
The agent says that a guard protects this host only while it sees one alive.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from roost.agent.fencing import guard
from roost.base import private
from roost.base.clock import Clock
from roost.hostkit.files import file_name, id_of, write_whole

#: A guard whose last sign of life is older than this is not counted on.
ALIVE_S = 5.0


class FolderFences:
    """Stop recipes, one file per VM. Implements `Fences`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / guard.RECIPES
        private.make_folder(self._folder)

    def put(self, vm_id: str, recipe: dict[str, object]) -> None:
        """Store a recipe; processes that are killed are gone after a power cut anyway."""
        path = self._folder / file_name(vm_id)
        write_whole(path, json.dumps(recipe).encode(), durable=False)

    def drop(self, vm_id: str) -> None:
        """Remove a VM's stop recipe."""
        (self._folder / file_name(vm_id)).unlink(missing_ok=True)

    def ids(self) -> Iterable[str]:
        """Return the VMs with a recipe."""
        return [id_of(path) for path in self._folder.glob("*.json")]


class GuardHandle(Protocol):
    """What the agent knows of its fence guard."""

    def ensure(self) -> bool:
        """Start a guard unless one is alive; return whether one has yet to show a sign of life."""

    def stop_s(self) -> float | None:
        """Return how long it needs at most to stop VMs, None while none is alive."""


class NoGuard:
    """A host without a fence guard: its VMs are never restarted elsewhere by the lease alone."""

    def ensure(self) -> bool:
        """Start no guard process."""
        return False

    def stop_s(self) -> float | None:
        """Return no time: no guard stops VMs."""
        return None


class ProcessGuard:
    """The guard process of one folder. Implements `GuardHandle`."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        stop_s: float = 5.0,
        start: bool = True,
        watchdog: str | None = None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._stop_s = stop_s
        self._start = start  # False: someone else starts it, here it is only watched
        self._watchdog = watchdog
        self._pid: int | None = None

    def ensure(self) -> bool:
        """Start a guard unless one is alive; if two start, the second finds the lock and leaves."""
        if not self._start or self.is_alive():
            return False
        if self._child_runs():
            return True  # started just now
        command = [sys.executable, "-m", guard.__name__, str(self._folder)]
        if self._watchdog:
            command += ["--watchdog", self._watchdog]
        # Spawned bare, not as a `Popen`: it is meant to outlive whoever holds a handle of it.
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        self._pid = os.posix_spawn(
            sys.executable, command, private.plain_environment(), file_actions=nothing, setsid=True
        )
        return True

    def _child_runs(self) -> bool:
        """Return whether the guard that this agent started still runs; reap it if not."""
        if self._pid is None:
            return False
        try:
            ended, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            ended = self._pid
        if ended:
            self._pid = None
        return not ended

    def is_alive(self) -> bool:
        """Return whether a guard has given a sign of life just now."""
        sign = guard.read_sign(self._folder)
        if sign is None or sign.get("boot") != guard.boot_id():
            return False
        at = sign.get("at")
        return isinstance(at, float) and 0 <= self._clock.monotonic() - at < ALIVE_S

    def stop_s(self) -> float | None:
        """Return how long it needs at most to stop VMs, None while none is alive."""
        return self._stop_s if self.is_alive() else None


def dismiss_guard(folder: Path, *, force: bool = False) -> bool:
    """Ask the guard of a folder to leave once no VM needs it, or end it; False: there is none."""
    sign = guard.read_sign(folder)
    if sign is None or sign.get("boot") != guard.boot_id():
        return False
    pid, started = sign.get("pid"), sign.get("started")
    if not isinstance(pid, int) or guard.started_at(pid) != started:
        return False
    os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
    return True
