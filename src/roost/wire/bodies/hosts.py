"""Bodies of hosts: how they are shown, labelled, drained and confirmed dead."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from roost.wire.bodies.words import HostLabels, Reply, Request, Size


class HostAmounts(Reply):
    """One resource of a host; `used` is measured and may be unknown."""

    capacity: int
    committed: int
    used: int | None = None


class HostBody(Reply):
    """A host as it is now. `virtual`: its driver only pretends to run VMs."""

    name: str
    number: int
    health: str
    admin: str
    driver: str
    virtual: bool
    zone: str
    rack: str
    site: str
    architecture: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    cpu_milli: HostAmounts
    memory_bytes: HostAmounts
    disk_bytes: HostAmounts
    extended: dict[str, HostAmounts]
    devices: list[dict[str, Any]]
    cells: list[dict[str, Any]]
    vms: int
    max_vms: int | None
    generation: int
    connected: bool  # its agent is connected to the process that answers
    guard: bool  # it registered a running fence guard
    fenced: str | None  # how it was fenced, while it is
    held: list[dict[str, Any]] = []  # VMs it runs that are not on its list
    unusable: str = ""  # why it is set aside: what it registered with cannot be loaded
    capabilities: list[str] = []  # what VMs may ask for by `capability`
    overcommit: dict[str, float] = {}  # cpu, memory, disk; how far each is promised
    reserve: dict[str, int] = {}  # what is kept back of each, in millicores and bytes
    # What an operator has set in place of what its agent says: labels, taints, overcommit.cpu ...
    overridden: list[str] = []
    closed: str = ""  # why it takes no new VMs, as who closed it said


class HostPage(Reply):
    """Hosts in the order of their numbers."""

    hosts: list[HostBody]
    next: str | None = None


class SchedulingInfo(Reply):
    """The six lines that describe a host to an operator."""

    host: str
    text: str


class SetLabels(Request):
    """A host's labels, all of them."""

    labels: HostLabels


class TaintBody(Request):
    """A mark that keeps away VMs without a matching toleration, or is only held against a host."""

    key: Annotated[str, Meta(pattern=r"^[^=:\s]{1,63}$(?!\n)")]
    value: Annotated[str, Meta(pattern=r"^[^=:\s]{0,253}$(?!\n)")] = ""
    effect: Literal["no-place", "prefer-not"] = "no-place"


Limited = Literal["cpu", "memory", "disk"]
#: How far a resource is promised: 2 is twice what there is.
Ratio = Annotated[float, Meta(ge=0.001, le=1000)] | Annotated[int, Meta(ge=1, le=1000)]


class SetHost(Request):
    """What is to be another about a host; what is left out stays, null: as its agent says.

    Each is replaced as a whole, and survives every registration of the agent.
    """

    labels: HostLabels | UnsetType | None = UNSET
    taints: Annotated[list[TaintBody], Meta(max_length=64)] | UnsetType | None = UNSET
    overcommit: dict[Limited, Ratio] | UnsetType | None = UNSET
    reserve: dict[Limited, Size] | UnsetType | None = UNSET


class SetMaintenance(Request):
    """Whether a host is out of service; only an empty one can be taken out."""

    on: bool


class ConfirmDead(Request):
    """An operator's word that a host is off and stays off; `reason` goes into the events."""

    reason: Annotated[str, Meta(min_length=1, max_length=1000)]


class NotRecovered(Reply):
    """A VM of a dead host that could not be taken off it, and why."""

    vm: str
    why: str


class RecoveredBody(Reply):
    """What became of the VMs of a host that is off."""

    host: str
    restarted: list[str] = []
    queued: list[str] = []  # no host has room; they start when one has
    failed: list[NotRecovered] = []


class DrainBody(Reply):
    """How far a drain has come."""

    host: str
    state: str  # draining, blocked, empty
    left: int
    moving: str | None = None  # the first of those on their way
    blocked: list[dict[str, Any]] = []  # VMs that fit nowhere else, each with its rejection
    under_way: list[str] = []  # all VMs on their way
