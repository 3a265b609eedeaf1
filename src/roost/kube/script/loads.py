"""How busy VMs are over time: drawn amounts, and the loads that lie on a VM at one moment.

A load is laid on a VM for a while and taken off again; what is left when all are off is exactly
what the VM began with, however the loads overlapped. Nothing here asks a cluster.
"""

import math
import random
from typing import Any, Literal, NamedTuple

from roost.base.errors import InvalidRequest
from roost.base.units import parse_bytes
from roost.wire.text.strictyaml import Readers, read_seconds

#: Rounds of one draw of a Poisson number; a mean so large makes no sense in a scenario.
_MOST = 10_000
Kind = Literal["fixed", "uniform", "exponential", "poisson"]


class Draw:
    """An amount: fixed, or drawn for each use.

    In files `3`, `[1, 4]` (uniform), `{exponential: 3}` and `{poisson: 3}` (with that mean). No
    struct: msgspec would read the fields of one, and a file writes it in other ways.
    """

    __slots__ = ("high", "kind", "low")

    def __init__(self, kind: Kind, low: float, high: float = 0.0) -> None:
        self.kind, self.low, self.high = kind, low, high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draw) and (self.kind, self.low, self.high) == (
            other.kind, other.low, other.high
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.kind, self.low, self.high))

    def __repr__(self) -> str:
        words = f"{self.low:g}" if self.kind != "uniform" else f"{self.low:g} to {self.high:g}"
        return f"{type(self).__name__}({self.kind} {words})"

    def draw(self, chance: random.Random) -> float:
        """Return one amount; a fixed one asks chance for nothing."""
        match self.kind:
            case "uniform":
                return chance.uniform(self.low, self.high)
            case "exponential":
                return chance.expovariate(1.0 / self.low)
            case "poisson":
                return float(_poisson(self.low, chance))
        return self.low

    @property
    def most(self) -> float:
        """Return the largest amount; infinite when there is none."""
        largest = {"fixed": self.low, "uniform": self.high}
        return largest.get(self.kind, math.inf)


class Number(Draw):
    """A number of something."""

    __slots__ = ()


class Share(Draw):
    """A part of a whole, from 0 to 1."""

    __slots__ = ()


class Bytes(Draw):
    """An amount of memory."""

    __slots__ = ()


class Span(Draw):
    """A length of time."""

    __slots__ = ()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{value!r} is no number of 0 or more")
    return float(value)


def _bytes(value: Any) -> float:
    try:
        return float(parse_bytes(value))
    except (InvalidRequest, TypeError, AttributeError):
        raise ValueError(f"{value!r} is no amount of bytes; write it as 4GiB") from None


def _read(kind: type[Draw], value: Any, allowed: tuple[str, ...]) -> Draw:
    one = {Span: read_seconds, Bytes: _bytes}.get(kind, _number)
    if isinstance(value, list):
        value = {"uniform": value}
    if not isinstance(value, dict):
        return kind("fixed", one(value))
    if len(value) != 1 or next(iter(value)) not in allowed:
        raise ValueError(f"{value!r} is neither a value nor one of {', '.join(allowed)}")
    ((how, amount),) = value.items()
    if how != "uniform":
        mean = one(amount)
        if mean <= 0:
            raise ValueError(f"the mean of {value!r} must be more than 0")
        return kind(how, mean)
    if not isinstance(amount, list) or len(amount) != 2:
        raise ValueError(f"{amount!r} is no range; write it as [LOWEST, HIGHEST]")
    low, high = one(amount[0]), one(amount[1])
    if low > high:
        raise ValueError(f"{amount!r} is no range: the lowest comes first")
    return kind("uniform", low, high)


def _read_number(value: Any) -> Draw:
    found = _read(Number, value, ("uniform", "exponential", "poisson"))
    if found.kind == "poisson" and found.low > _MOST:
        raise ValueError(f"a mean of {found.low:g} is too many")
    return found


def _read_share(value: Any) -> Draw:
    found = _read(Share, value, ("uniform",))
    if found.most > 1.0:
        raise ValueError(f"{value!r} is no share from 0 to 1")
    return found


def _read_bytes(value: Any) -> Draw:
    return _read(Bytes, value, ("uniform",))


def _read_span(value: Any) -> Draw:
    return _read(Span, value, ("uniform", "exponential"))


#: For `roost.wire.text.strictyaml`.
READERS: Readers = {
    Number: _read_number,
    Share: _read_share,
    Bytes: _read_bytes,
    Span: _read_span,
}


def _poisson(mean: float, chance: random.Random) -> int:
    """Return how many of something happen in a while in which `mean` are usual."""
    count, passed = 0, chance.expovariate(1.0)
    while passed < mean:
        count += 1
        passed += chance.expovariate(1.0)
    return count


# What lies on a VM


class Level(NamedTuple):
    """How much of its cores and of its memory a VM uses, from 0 to 1."""

    cpu: float
    memory: float


class Load(NamedTuple):
    """One load on one VM: a level that replaces the VM's own, or one that comes on top."""

    cpu: float | None = None
    memory: float | None = None
    on_top: bool = False


class LoadBook:
    """The loads of all VMs."""

    def __init__(self) -> None:
        self._own: dict[str, Level] = {}
        self._loads: dict[str, dict[int, Load]] = {}
        self._number = 0

    def add(self, vm: str, own: Level) -> None:
        """Take note of a VM and of what it uses by itself."""
        self._own.setdefault(vm, own)

    def remove(self, vm: str) -> None:
        """Forget a VM and all that lies on it."""
        self._own.pop(vm, None)
        self._loads.pop(vm, None)

    def lay(self, vm: str, load: Load) -> int:
        """Lay a load on a VM; the number takes it off again."""
        self._number += 1
        self._loads.setdefault(vm, {})[self._number] = load
        return self._number

    def take_off(self, vm: str, number: int) -> bool:
        """Take a load off; return whether it was still there."""
        return self._loads.get(vm, {}).pop(number, None) is not None

    def level(self, vm: str) -> Level:
        """Return what a VM uses now: the latest level that replaces, and all that is on top."""
        own = self._own[vm]
        cpu, memory = own
        more_cpu = more_memory = 0.0
        for load in self._loads.get(vm, {}).values():
            if load.on_top:
                more_cpu += load.cpu or 0.0
                more_memory += load.memory or 0.0
            else:
                cpu = load.cpu if load.cpu is not None else cpu
                memory = load.memory if load.memory is not None else memory
        return Level(min(cpu + more_cpu, 1.0), min(memory + more_memory, 1.0))

    @property
    def busy(self) -> list[str]:
        """Return the VMs on which some load lies."""
        return sorted(vm for vm, loads in self._loads.items() if loads)
