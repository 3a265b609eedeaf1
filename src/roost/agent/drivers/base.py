"""The port between the agent and a hypervisor.

A driver keeps its VMs outside the agent's memory, so that an agent that was killed finds them
again. Every call is idempotent: asked twice, it ends in the same place. A call may hang; the
agent gives each one a time budget. What a driver cannot tell it says so: `list_vms` returns None,
a VM whose state cannot be read is `unknown`. Unknown never looks like empty.

    nothing --start--> starting --> running <--stop/start--> stopped
                                    running <--pause/resume--> paused
    nothing --prepare_incoming--> ready --arrives, or land--> running, paused or stopped; `arrived`
                                  ready --its process dies--> lost;  ready --withdraw--> nothing
    running, paused --send--> sending --> switching --> moved;  sending --recall--> running
    stopped --send--> moved                               any --destroy--> nothing

A copy that was received takes over by itself, in the driver, as soon as it is complete: the guest
must not stand still until a control plane has answered. The driver writes down that it takes over
before the guest executes, so that afterwards it can always tell whether a copy ever did.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from roost.wire.agentlink import (
    DesiredVM,
    FlowInfo,
    Inventory,
    ProgressInfo,
    SampleInfo,
    TaintInfo,
)

#: sending: it executes here while it is copied. switching: the guest stands still, and whether the
#: target has it is unknown here. lost: an incoming copy that never executed is dead.
LocalState = Literal[
    "starting",
    "running",
    "paused",
    "stopped",
    "ready",
    "lost",
    "sending",
    "switching",
    "moved",
    "unknown",
]

#: States in which a VM executes or may do so by itself, so that no other host may start it.
EXECUTING: frozenset[LocalState] = frozenset(
    {"starting", "running", "paused", "ready", "sending", "switching", "unknown"}
)

#: Why a VM was stopped that could run elsewhere when the host was cut off.
FENCED = "fenced"
#: Why a VM stopped that was not told to: by its guest, or because its process died.
GUEST_SHUTDOWN = "guest_shutdown"
CRASHED = "crashed"
#: Why a guest stands still that was not told to: its disk could not be written or read.
IO_ERROR = "io-error"


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
    reason: str = ""  # why it is stopped, when it was not asked to
    arrived: bool = False  # it came by a move, and no order to run it here has come yet
    endpoint: dict[str, str] = {}  # where a copy that is `ready` waits
    note: str = ""  # what its user should know, such as amounts that hold from the next boot
    load: str = ""  # of a virtual VM: what it pretends to do, in the words of its label
    flows: str = ""  # and to whom it pretends to send

    @property
    def is_remains(self) -> bool:
        """Return whether no data is lost when it goes: the VM lives, or may live, elsewhere."""
        return self.state in ("ready", "lost", "moved") or (
            self.state == "stopped" and self.reason == FENCED
        )


class ConsolePart(NamedTuple):
    """A piece of a VM's serial log; offsets are in bytes of the whole log."""

    text: str
    start: int
    end: int
    base: int = 0  # where this host's own part begins; before it is an earlier host's


class Fences(Protocol):
    """Where a driver leaves, per VM, how the fence guard stops it when the agent is dead."""

    def put(self, vm_id: str, recipe: dict[str, object]) -> None:
        """Store the recipe of one VM before the VM executes."""

    def drop(self, vm_id: str) -> None:
        """Remove a VM's stop recipe: it does not execute any more, or must not run elsewhere."""

    def ids(self) -> Iterable[str]:
        """Return the VMs with a recipe."""


class Driver(Protocol):
    """What the agent asks of a hypervisor. Raises DriverError."""

    name: str
    virtual: bool  # it only pretends to run VMs

    def watch(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the id of a VM whose state has changed by itself."""

    async def close(self) -> None:
        """Close the driver's connections and files; VMs run on."""

    async def inventory(self) -> Inventory:
        """Return what the host has; an amount that cannot be read has the total None."""

    async def conditions(self) -> list[TaintInfo]:
        """Return the taints that the host has because of how it is now, such as a full disk."""

    async def list_vms(self) -> list[LocalVM] | None:
        """Return every VM that is here, or None when that cannot be told."""

    async def look(self, vm_id: str) -> LocalVM | None:
        """Return one VM, None if it is not here; raises when that cannot be told."""

    async def start(self, vm: DesiredVM) -> None:
        """Create and boot a VM, or boot what is there; returns when it runs (or is paused, if so).

        A copy that is `moved` or `switching` goes on where it stood, unless more restarts are
        ordered than it has seen: then what it holds in memory is stale, and it boots anew.
        """

    async def stop(self, vm_id: str, grace_s: float, reason: str = "") -> None:
        """Ask the VM to shut down; after `grace_s` cut it off. It stays here, stopped.

        An incoming copy is cut off, and is `lost`.
        """

    async def pause(self, vm: DesiredVM) -> None:
        """Pause a VM's guest, its memory kept."""

    async def resume(self, vm: DesiredVM) -> None:
        """Resume a paused guest."""

    async def restart(self, vm: DesiredVM) -> None:
        """Boot a running VM anew, once."""

    async def resize(self, vm: DesiredVM) -> None:
        """Resize a VM to the order's amounts; what cannot change now, at the next boot (`note`)."""

    async def protect(self, vm: DesiredVM) -> None:
        """Store or remove the stop recipe, as the order's `restart` asks."""

    async def destroy(self, vm_id: str) -> None:
        """Destroy a VM with its disks."""

    async def prepare_incoming(self, vm: DesiredVM) -> None:
        """Prepare an incoming copy; then `look` shows its endpoint. Nothing executes yet."""

    async def withdraw(self, vm_id: str) -> None:
        """Destroy an incoming copy. Raises `arrived` (transient) if it has taken over already.

        The decision and the arrival exclude each other: what was withdrawn never executed.
        """

    async def send(self, vm: DesiredVM, progress: Callable[[ProgressInfo], None]) -> None:
        """Send a VM to `vm.endpoint`, or watch the sending that is under way.

        On return it is `moved`: it does not execute here and never will by itself. When it raises,
        the VM is what `look` says: it runs on here, or is `switching`. Cancelled, it leaves all as
        it is.
        """

    async def recall(self, vm: DesiredVM) -> None:
        """Cancel the sending unless the switch-over has begun; then it does nothing."""

    async def land(self, vm: DesiredVM) -> None:
        """Turn the incoming copy into the VM, running, paused or stopped as ordered.

        With the part `incoming` the VM is marked as arrived, with `run` the mark is removed. Raises
        `not_ready` (transient) when it has not come whole yet.
        """

    async def console(self, vm_id: str, start: int | None, limit: int) -> ConsolePart:
        """Return the last `limit` bytes of its serial log, or what follows `start`."""

    async def samples(self) -> list[SampleInfo]:
        """Return one reading of each running VM and one of the host (with an empty `vm`)."""

    async def flows(self) -> list[FlowInfo]:
        """Return what VMs here have sent to other cards since the last time, if it is counted."""
