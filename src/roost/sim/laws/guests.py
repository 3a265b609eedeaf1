"""Where the state of each guest is: the one copy that must not be lost while its VM is wanted.

A guest's state begins where it first executes and goes on only by arriving at another host. Two
laws follow: nobody boots a VM beside the copy that has its state, and nobody destroys that copy.
A host that was fenced is out of it: its VMs are booted anew elsewhere, by what is on their disks.
So is one that refused a VM and boots it after all: the ledger has taken the VM off that host.
"""

from roost.agent.drivers.base import LocalVM
from roost.sim.laws.books import Broken

_BOOTED = ("starting", "running", "paused")


class Guests:
    """The copy of each VM that has its state."""

    def __init__(self) -> None:
        self._at: dict[str, str] = {}  # VM -> host

    def changed(
        self, host: str, vm_id: str, vm: LocalVM, before: LocalVM | None, home: str
    ) -> None:
        """Record a copy's state; `home` is where the ledger has the VM."""
        at = self._at.get(vm_id)
        if at == host:
            return
        if vm.arrived or (at is None and vm.state in _BOOTED and home == host):
            self._at[vm_id] = host
        elif at is not None and vm.state in _BOOTED:
            was = before.state if before is not None else "not there"
            raise Broken(f"{vm_id} was {was} and is booted on {host}, and its state is on {at}")

    def destroyed(self, host: str, vm_id: str, *, wanted: bool) -> None:
        """Record that a copy was destroyed; the one with the state must stay."""
        if self._at.get(vm_id) != host:
            return
        if wanted:
            raise Broken(f"{vm_id} is wanted, and its state was destroyed on {host}")
        del self._at[vm_id]

    def fenced(self, host: str) -> None:
        """Record that a host is fenced: its copies do not count any more."""
        for vm_id in [vm_id for vm_id, at in self._at.items() if at == host]:
            del self._at[vm_id]

    def forget(self, vm_id: str) -> None:
        """Forget a VM."""
        self._at.pop(vm_id, None)
