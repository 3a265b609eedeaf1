"""Bodies of hosts: how they are shown, labelled, drained and confirmed dead."""

from typing import Annotated, Any

from msgspec import Meta

from roost.wire.bodies.words import Labels, Reply, Request


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

    labels: Labels


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
    moving: str | None = None
    blocked: list[dict[str, Any]] = []  # VMs that fit nowhere else, each with its rejection
