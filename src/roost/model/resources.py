"""What a VM asks for in amounts: the demand vector, devices and NUMA placement."""

from dataclasses import dataclass, field
from enum import StrEnum

from roost.base.errors import InvalidRequest
from roost.base.units import MAX_AMOUNT

#: The three resources every host has, in column order; extended resources follow by name.
BASE_RESOURCES = ("cpu", "memory", "disk")

#: Thousandths in one whole device.
WHOLE_DEVICE = 1000


class NumaMode(StrEnum):
    """How a VM may lie on a host's NUMA cells."""

    ANY = "any"  # anywhere; charged to the host, not to a cell
    ONE_CELL = "one"  # cpu and memory from a single cell
    SPLIT = "split"  # half from each of two cells


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """GPUs or the like: `count` devices with `milli` thousandths free on each."""

    count: int
    milli: int = WHOLE_DEVICE
    models: tuple[str, ...] = ()  # any of these; empty means any model
    memory_bytes: int = 0  # each device has at least this much

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidRequest(f"device count {self.count} is less than one")
        if not 1 <= self.milli <= WHOLE_DEVICE:
            raise InvalidRequest(f"device share {self.milli} is not within 1 and {WHOLE_DEVICE}")
        if not 0 <= self.memory_bytes <= MAX_AMOUNT:
            raise InvalidRequest(f"device memory {self.memory_bytes} is not within 0 and 256 TiB")


@dataclass(frozen=True, slots=True)
class Demand:
    """The amounts one VM asks for. Whole numbers: millicores, bytes, extended units."""

    cpu_milli: int
    memory_bytes: int
    disk_bytes: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    devices: DeviceDemand | None = None
    numa: NumaMode = field(default=NumaMode.ANY)

    def __post_init__(self) -> None:
        for name, amount in self.amounts():
            if isinstance(amount, bool) or not isinstance(amount, int):
                raise InvalidRequest(f"{name} {amount!r} is not a whole number", resource=name)
            if amount < 0:
                raise InvalidRequest(f"{name} {amount} is negative", resource=name)
            if amount > MAX_AMOUNT:
                raise InvalidRequest(f"{name} {amount} is more than 2^48", resource=name)
        if self.cpu_milli == 0 or self.memory_bytes == 0:
            raise InvalidRequest(
                f"a VM needs cpu and memory; this one asks for {self.cpu_milli} millicores "
                f"and {self.memory_bytes} bytes"
            )
        names = [name for name, _ in self.extended]
        if len(set(names)) != len(names) or set(names) & set(BASE_RESOURCES):
            raise InvalidRequest(f"extended resources {names} repeat a name")

    def amounts(self) -> tuple[tuple[str, int], ...]:
        """Return every (resource name, amount), base resources first."""
        return (
            ("cpu", self.cpu_milli),
            ("memory", self.memory_bytes),
            ("disk", self.disk_bytes),
            *self.extended,
        )
