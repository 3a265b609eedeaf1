"""Looks at the VM files of all hosts without a pause: never may two hosts execute one VM.

Files are read one after the other, so a VM that leaves one host and arrives at another between two
reads could look like two copies. Hence the first is read again: only if it executes before *and*
after the second was seen executing do both execute at one instant.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Set
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from roost.agent.drivers.base import EXECUTING, LocalState, LocalVM

_decoder = msgspec.json.Decoder(LocalVM)


def read_vm(path: Path) -> LocalVM | None:
    """Return one VM, None when it is not there."""
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None


def vm_files(folder: Path) -> Iterator[Path]:
    """Yield the VM files of all hosts; a process with several has a folder for each."""
    yield from folder.glob("*/vms/*.json")
    yield from folder.glob("*/*/vms/*.json")


def host_of(path: Path) -> str:
    """Return the host whose VM file this is."""
    return path.parts[-3]


def is_executing(path: Path, states: Set[LocalState] = EXECUTING) -> bool:
    """Say whether the VM of a file may execute."""
    vm = read_vm(path)
    return vm is not None and vm.state in states


class OneCopy:
    """Use it as a context manager around what must not start a second copy."""

    def __init__(
        self,
        folder: Path,
        *,
        but: tuple[str, ...] = (),
        states: Set[LocalState] = EXECUTING,
        every_s: float = 0.001,
    ) -> None:
        self._folder = folder
        self.but = set(but)  # hosts that an operator has called dead
        self._states = states  # where VMs move, a copy that only waits is none
        self._every_s = every_s
        self.looks = 0
        self.doubles: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="one-copy")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if error is None:
            assert not self.doubles, self.doubles
            assert self.looks > 100, "it hardly looked"

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s) and len(self.doubles) < 10:
            self.looks += 1
            executing: dict[Path, LocalVM] = {}
            for path in vm_files(self._folder):
                vm = read_vm(path) if host_of(path) not in self.but else None
                if vm is not None and vm.state in self._states:
                    executing[path] = vm
            self.look(executing)

    def look(self, executing: dict[Path, LocalVM]) -> None:
        """Look at what executed a moment ago."""
        seen: defaultdict[str, list[Path]] = defaultdict(list)
        for path in executing:
            seen[path.name].append(path)
        for paths in seen.values():
            if len(paths) > 1 and is_executing(paths[0], self._states):
                words = " and ".join(map(str, sorted(paths)))
                if words not in self.doubles:
                    self.doubles.append(words)


def copies(folder: Path, vm_id: str) -> dict[str, str]:
    """Return the state of a VM's copy on each host that has one."""
    found = {}
    for path in folder.glob(f"*/vms/{vm_id}.json"):
        vm = read_vm(path)
        if vm is not None:
            found[path.parts[-3]] = vm.state
    return found
