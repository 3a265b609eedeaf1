"""The stage of the demo of jobs: a control plane alone, whose machines are rented from this one.

A machine is a worker process that the control plane starts by its provider `local`. It is looked
up in the provider's own folder, so that what the tour kills is really that worker.
"""

import json
import os
import signal
from typing import ClassVar, NoReturn

from roost.app.demo import Stage
from roost.base.errors import InvalidRequest

#: Short, so that nobody has to wait; usual is a minute.
SILENT_S = 15


class JobStage(Stage):
    """A control plane without hosts."""

    serve_options: ClassVar[tuple[str, ...]] = ("--worker-silent-s", str(SILENT_S))

    async def start_host(self, name: str) -> NoReturn:
        """Refuse: there is no host here."""
        raise InvalidRequest(f"the demo of jobs has no host {name!r}")

    async def _end_vms(self) -> None:
        """Leave VMs alone: there are none."""

    def worker_pid(self, machine: str) -> int:
        """Return the process id of a machine's worker."""
        kept = json.loads((self.machines_folder / machine / "machine.json").read_bytes())
        return int(kept["pid"])

    def kill_worker(self, machine: str) -> int:
        """Kill the worker of a machine with SIGKILL, and return which process that was."""
        pid = self.worker_pid(machine)
        os.kill(pid, signal.SIGKILL)
        return pid
