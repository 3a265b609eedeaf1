"""The port between the agent and a hypervisor.

A driver keeps its VMs outside the agent's memory, so that an agent that was killed finds them
again. Every call is idempotent: asked twice, it ends in the same place. A call may hang; the
agent gives each one a time budget. What a driver cannot tell it says so: `list_vms` returns None,
a VM whose state cannot be read is `unknown`. Unknown never looks like empty.

    nothing --start--> starting --> running <--start/stop--> stopped
    nothing --prepare_incoming--> ready --land--> running (or stopped, as ordered)
    running, stopped --send--> moved                      any --destroy--> nothing
"""

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

from roost.wire.agentlink import DesiredVM, FailureClass, Inventory, SampleInfo

LocalState = Literal["starting", "running", "stopped", "ready", "moved", "unknown"]

#: States in which a VM may execute, so that no other host may run it.
EXECUTING: frozenset[LocalState] = frozenset({"starting", "running", "unknown"})

#: Why a VM was stopped that could run elsewhere when the host was cut off.
FENCED = "fenced"


class LocalVM(Struct, frozen=True, omit_defaults=True):
    """One VM as the driver shows it. Numbers the driver does not know are None or 0."""

    id: str
    name: str
    state: LocalState
    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    extended: dict[str, int] = {}
    devices: list[int] = []
    generation: int = 0  # of the order it was last changed by
    restarts: int | None = None  # how many restarts were carried out
    restart: Literal["here", "elsewhere"] = "here"
    reason: str = ""

    @property
    def is_remains(self) -> bool:
        """Return whether no data is lost when it goes: the VM lives, or may live, elsewhere."""
        return self.state in ("ready", "moved") or (
            self.state == "stopped" and self.reason == FENCED
        )


class DriverError(Exception):
    """A driver could not do it. The failure class says when it makes sense to try again."""

    def __init__(self, failure: FailureClass, code: str, message: str) -> None:
        super().__init__(message)
        self.failure = failure
        self.code = code
        self.message = message


class Fences(Protocol):
    """Where a driver leaves, per VM, how the fence guard stops it when the agent is dead."""

    def put(self, vm_id: str, recipe: dict[str, object]) -> None:
        """Store the recipe of one VM before the VM executes."""

    def drop(self, vm_id: str) -> None:
        """Remove it: the VM does not execute any more, or must not run elsewhere."""

    def ids(self) -> Iterable[str]:
        """Return the VMs with a recipe."""


class Driver(Protocol):
    """What the agent asks of a hypervisor. Raises DriverError."""

    name: str
    virtual: bool  # it only pretends to run VMs

    async def inventory(self) -> Inventory:
        """Return what the host has; an amount that cannot be read has the total None."""

    async def list_vms(self) -> list[LocalVM] | None:
        """Return every VM that is here, or None when that cannot be told."""

    async def look(self, vm_id: str) -> LocalVM | None:
        """Return one VM, None if it is not here; raises when that cannot be told."""

    async def start(self, vm: DesiredVM) -> None:
        """Make it and boot it, or boot what is there; returns when it runs."""

    async def stop(self, vm_id: str, grace_s: float, reason: str = "") -> None:
        """Ask the VM to shut down; after `grace_s` cut it off. It stays here, stopped."""

    async def restart(self, vm: DesiredVM) -> None:
        """Boot a running VM anew, once."""

    async def resize(self, vm: DesiredVM) -> None:
        """Give it the amounts of the order."""

    async def protect(self, vm: DesiredVM) -> None:
        """Store or remove the stop recipe, as the order's `restart` asks."""

    async def destroy(self, vm_id: str) -> None:
        """Remove it with its disks."""

    async def prepare_incoming(self, vm: DesiredVM) -> None:
        """Get ready to receive it; nothing executes yet."""

    async def send(self, vm: DesiredVM) -> None:
        """Send it to `vm.peer`. On return it does not execute here and never will by itself."""

    async def land(self, vm: DesiredVM) -> None:
        """Turn the incoming copy into the VM, running or stopped as ordered."""

    async def samples(self) -> list[SampleInfo]:
        """Return one reading of each running VM and one of the host (with an empty `vm`)."""
