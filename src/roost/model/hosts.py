"""What a host is: its inventory, its place in the fault domains, its state."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from roost.base.errors import InvalidRequest
from roost.base.units import MAX_AMOUNT

#: Devices, and NUMA cells, of one host: positions are bits of one machine word.
MOST_PARTS = 62


#: What a host's tasks may wait for, as its kernel tells.
PRESSURES = ("cpu", "memory", "io")


class Health(IntEnum):
    """What we observe of a host's agent."""

    ONLINE = 0
    SUSPECT = 1
    OFFLINE = 2

    @property
    def label(self) -> str:
        """Return the word people read."""
        return self.name.lower()


class Admin(IntEnum):
    """What an operator has decided about a host."""

    OPEN = 0
    CORDONED = 1
    DRAINING = 2
    MAINTENANCE = 3

    @property
    def label(self) -> str:
        """Return the word people read."""
        return self.name.lower()


class Scope(IntEnum):
    """The fault domains a group rule can speak of."""

    HOST = 0
    RACK = 1
    ZONE = 2

    @property
    def label(self) -> str:
        """Return the word people read."""
        return self.name.lower()


class TaintEffect(StrEnum):
    """What a taint does to a VM that does not tolerate it."""

    NO_PLACE = "no-place"
    PREFER_NOT = "prefer-not"


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark that keeps away VMs without a matching toleration."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_PLACE


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or other device of a host, shareable in thousandths."""

    model: str
    memory_bytes: int = 0
    shareable: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.memory_bytes <= MAX_AMOUNT:
            raise InvalidRequest(
                f"device {self.model!r} has {self.memory_bytes} bytes, not within 0 and 2^48"
            )


@dataclass(frozen=True, slots=True)
class Cell:
    """One NUMA cell with its own cpu and memory."""

    cpu_milli: int
    memory_bytes: int

    def __post_init__(self) -> None:
        if not (0 <= self.cpu_milli <= MAX_AMOUNT and 0 <= self.memory_bytes <= MAX_AMOUNT):
            raise InvalidRequest(
                f"a cell of {self.cpu_milli} millicores and {self.memory_bytes} bytes is not "
                f"within 0 and 2^48"
            )


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of a host: what is there, what the host keeps, how far it is overcommitted.

    capacity = (total - reserve) x ratio, rounded down. `total` None means that nobody could read
    it: unknown is full, so such a host takes no VM.
    """

    total: int | None
    reserve: int = 0
    ratio_milli: int = 1000

    def __post_init__(self) -> None:
        if self.total is not None and not 0 <= self.total <= MAX_AMOUNT:
            raise InvalidRequest(f"total {self.total} is not within 0 and 2^48")
        if not 0 <= self.reserve <= MAX_AMOUNT:
            raise InvalidRequest(f"reserve {self.reserve} is not within 0 and 2^48")
        if not 1 <= self.ratio_milli <= 1_000_000:
            raise InvalidRequest(f"overcommit ratio {self.ratio_milli / 1000} is not in (0, 1000]")
        if self.capacity > MAX_AMOUNT:
            raise InvalidRequest(f"capacity {self.capacity} after overcommit is more than 2^48")

    @property
    def capacity(self) -> int:
        """Return what may be promised to VMs; nothing when the total is unknown."""
        if self.total is None:
            return 0
        return max(0, self.total - self.reserve) * self.ratio_milli // 1000


@dataclass(frozen=True, slots=True)
class HostSpec:
    """All that a host registers with."""

    name: str
    cpu: Resource
    memory: Resource
    disk: Resource
    extended: tuple[tuple[str, Resource], ...] = ()
    zone: str = ""
    rack: str = ""
    site: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    architecture: str = "x86_64"
    driver: str = "qemu"
    capabilities: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    cells: tuple[Cell, ...] = ()
    max_vms: int | None = None
    health: Health = Health.ONLINE
    admin: Admin = field(default=Admin.OPEN)

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidRequest("a host needs a name")
        if max(len(self.devices), len(self.cells)) > MOST_PARTS:
            raise InvalidRequest(
                f"host {self.name!r} has {len(self.devices)} devices and {len(self.cells)} cells; "
                f"at most {MOST_PARTS} of each are supported"
            )
        if self.max_vms is not None and not 0 <= self.max_vms <= MAX_AMOUNT:
            raise InvalidRequest(
                f"max_vms {self.max_vms} of host {self.name!r} is not within 0 and 2^48"
            )

    def resources(self) -> tuple[tuple[str, Resource], ...]:
        """Return every (resource name, resource), base resources first."""
        return (("cpu", self.cpu), ("memory", self.memory), ("disk", self.disk), *self.extended)

    @property
    def is_plain(self) -> bool:
        """Say whether the host has base resources alone."""
        return not (self.extended or self.devices or self.cells)

    @property
    def known(self) -> bool:
        """Say whether every total could be read."""
        return all(resource.total is not None for _, resource in self.resources())
