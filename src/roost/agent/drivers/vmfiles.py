"""Where the virtual driver keeps its VMs: one JSON file each, or memory for simulations.

Files outlive the agent, as real VMs do. Every change reads, decides and writes under one lock
that the fence guard takes too, so that a VM which the guard has stopped is not set running by a
start that was under way.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from roost.agent.drivers.base import LocalVM
from roost.base import private
from roost.hostkit.files import file_name, id_of, sync_folder, write_whole

#: From what is there to what shall be there; None is nothing.
Change = Callable[[LocalVM | None], LocalVM | None]


class VMFiles(Protocol):
    """The VMs of one virtual host."""

    async def all(self) -> list[LocalVM]:
        """Return all VMs; a broken file is a VM in the state `unknown`."""

    async def get(self, vm_id: str) -> LocalVM | None:
        """Return one VM, or None."""

    async def change(self, vm_id: str, change: Change) -> LocalVM | None:
        """Change one VM under the lock and return its new state."""

    def recipe(self, vm_id: str) -> dict[str, object]:
        """Return how the fence guard stops this VM."""


class MemoryVMs:
    """VMs in memory, for thousands of hosts in one process."""

    def __init__(self) -> None:
        self.vms: dict[str, LocalVM] = {}

    async def all(self) -> list[LocalVM]:
        """Return all stored VMs."""
        return list(self.vms.values())

    async def get(self, vm_id: str) -> LocalVM | None:
        """Return one VM, or None."""
        return self.vms.get(vm_id)

    async def change(self, vm_id: str, change: Change) -> LocalVM | None:
        """Store a change of one VM."""
        vm = change(self.vms.get(vm_id))
        if vm is None:
            self.vms.pop(vm_id, None)
        else:
            self.vms[vm_id] = vm
        return vm

    def recipe(self, vm_id: str) -> dict[str, object]:
        """Return a recipe that names the VM alone: no process outside could read memory."""
        return {"kind": "memory", "vm": vm_id}


class FolderVMs:
    """VMs as files in a folder. File work is done in threads: a slow disk stops no heartbeat."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        private.make_folder(folder)
        self._lock_path = folder / "lock"

    async def all(self) -> list[LocalVM]:
        """Return all stored VMs."""
        return await asyncio.to_thread(self._read_all)

    async def get(self, vm_id: str) -> LocalVM | None:
        """Return one VM, or None."""
        return await asyncio.to_thread(_read, self._path(vm_id), vm_id)

    async def change(self, vm_id: str, change: Change) -> LocalVM | None:
        """Change one VM under the file's lock."""
        return await asyncio.to_thread(self._change, vm_id, change)

    def recipe(self, vm_id: str) -> dict[str, object]:
        """Return the edit that stops this VM."""
        return {
            "kind": "edit",
            "file": str(self._path(vm_id).absolute()),
            "lock": str(self._lock_path.absolute()),
            "field": "state",
            "when": ["starting", "running", "paused"],
            "set": {"state": "stopped", "reason": "fenced"},
        }

    def _path(self, vm_id: str) -> Path:
        return self._folder / file_name(vm_id)

    def _read_all(self) -> list[LocalVM]:
        found = (_read(path, id_of(path)) for path in sorted(self._folder.glob("*.json")))
        return [vm for vm in found if vm is not None]

    def _change(self, vm_id: str, change: Change) -> LocalVM | None:
        path = self._path(vm_id)
        with locked(self._lock_path):
            before = _read(path, vm_id)
            after = change(before)
            if after is None:
                path.unlink(missing_ok=True)
                sync_folder(self._folder)
            elif after != before:
                write_whole(path, msgspec.json.encode(after))
        return after


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes and threads."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, private.FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path, vm_id: str) -> LocalVM | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=LocalVM)
    except msgspec.DecodeError:
        # It stays where it is: put aside, the VM would look like one that is not here.
        return LocalVM(id=vm_id, name="", state="unknown", reason="its file is broken")
