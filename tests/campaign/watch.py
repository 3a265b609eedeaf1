"""Watches all VM files of the hosts: no VM executes twice, no host executes more than it has.

As with two copies (see `tests.system.copies`), files are read one after the other. So a host that
looks too full is read once more: only if all of it still executes did it so at one instant.
"""

from collections import defaultdict
from pathlib import Path

from roost.agent.drivers.base import LocalState, LocalVM
from tests.system.copies import OneCopy, host_of, read_vm

#: States in which a guest executes; one that waits for a move does not.
RUNS: frozenset[LocalState] = frozenset({"starting", "running", "paused"})
_MOST_TOLD = 10


class Watch(OneCopy):
    """Use it as a context manager around a run; then read `doubles` and `full`."""

    def __init__(self, folder: Path, cpu_milli: int) -> None:
        super().__init__(folder, states=RUNS, every_s=0.01)
        self._cpu_milli = cpu_milli  # of every host
        self.full: list[str] = []

    def look(self, executing: dict[Path, LocalVM]) -> None:
        """Look for two copies, then for hosts that execute too much."""
        super().look(executing)
        hosts: defaultdict[str, dict[Path, LocalVM]] = defaultdict(dict)
        for path, vm in executing.items():
            hosts[host_of(path)][path] = vm
        for host, vms in hosts.items():
            used = sum(vm.cpu_milli for vm in vms.values())
            if used > self._cpu_milli and all(read_vm(path) == vm for path, vm in vms.items()):
                self._tell(f"{host} executes {used} of {self._cpu_milli} millicores")

    def _tell(self, words: str) -> None:
        if words not in self.full and len(self.full) < _MOST_TOLD:
            self.full.append(words)
