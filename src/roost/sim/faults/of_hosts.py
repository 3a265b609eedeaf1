"""Faults of a simulated host that kill nothing: a full disk, a hypervisor that fails.

The agent's store asks before every write, the driver's VMs before every look and change. A host
that is well answers at once.
"""

from collections.abc import Callable

from roost.hostkit.failures import DriverError

Note = Callable[[str, str, str], None]


class Ailments:
    """The faults that one host has now."""

    def __init__(self, host: str, note: Note) -> None:
        self.full = False  # the agent's disk
        self.blind = False  # the hypervisor does not tell what is there
        self.refusals = 0  # so many of the next changes find no room
        self.failures = 0  # so many of the next changes fail for a moment
        self._host, self._note = host, note

    def write(self, site: str) -> None:
        """Refuse a write of the agent when its disk is full."""
        if self.full:
            self._note("fault.disk_full", self._host, site)
            raise OSError(28, "No space left on device")

    def look(self, site: str) -> None:
        """Refuse a look at VMs while the hypervisor does not answer."""
        if self.blind:
            self._note("fault.blind", self._host, site)
            raise DriverError("transient", "driver_error", "the hypervisor does not answer")

    def change(self, site: str) -> None:
        """Let a change of a VM fail, if one has to."""
        if self.refusals and site in ("vm:protect", "vm:prepare_incoming"):
            self.refusals -= 1
            self._note("fault.refused", self._host, site)
            raise DriverError("capacity", "insufficient_resources", "the hypervisor has no room")
        if self.failures:
            self.failures -= 1
            self._note("fault.driver", self._host, site)
            raise DriverError("transient", "driver_error", "the hypervisor failed")

    def end(self) -> None:
        """End every fault of the host."""
        self.full = self.blind = False
        self.refusals = self.failures = 0
