"""What machines of a type have turned out to have: plans count on that, not on a provider's word.

    8 GiB by the provider  ->  a machine comes, its worker says 7.6 GiB  ->  the next is taken for
                               one of 7.6 GiB; it is rented, charged and billed as what it is called

Of all machines of a pool and type that have spoken the largest amounts count, so that one bad
machine does not speak for its type. It is forgotten some hours after the newest of them was wanted:
then one is rented again as its provider describes it, and tells what it has. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roost.model.job import MachineType

#: How long a machine that was wanted then says what another of its type would have.
REMEMBERED_MS = 6 * 3_600_000

Amounts = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Reported:
    """What machines of a type came with at most, and when the newest of them was wanted."""

    called: Amounts  # what their provider says of the type
    had: Amounts
    newest_ms: int

    def joined(self, other: "Reported") -> "Reported":
        """Return what both say; of a type that has changed what is said of the newer form."""
        if self.called != other.called:
            return max(self, other, key=lambda each: each.newest_ms)
        had = zip(self.had, other.had, strict=True)
        cpu, memory, disk = (max(pair) for pair in had)
        newest_ms = max(self.newest_ms, other.newest_ms)
        return Reported(self.called, (cpu, memory, disk), newest_ms)


#: What is known of a pool's types, by their names.
Experience = Mapping[str, Reported]
NO_EXPERIENCE: Experience = {}


def amounts_of(kind: MachineType) -> Amounts:
    """Return what a provider says that a machine of a type has."""
    return kind.cpu_milli, kind.memory_bytes, kind.disk_bytes


def usable(types: Iterable[MachineType], known: Experience) -> list[MachineType]:
    """Return types, in their order, with the amounts that a job may count on."""
    return [_as_known(each, known.get(each.name)) for each in types]


def _as_known(kind: MachineType, told: Reported | None) -> MachineType:
    if told is None or told.called != amounts_of(kind):
        return kind
    cpu, memory, disk = told.had
    return replace(kind, cpu_milli=cpu, memory_bytes=memory, disk_bytes=disk)


def holding(
    types: Sequence[MachineType], known: Experience, asked: Mapping[str, int]
) -> list[MachineType]:
    """Return the types, as providers describe them, of which a machine would hold a job."""
    pairs = zip(types, usable(types, known), strict=True)
    return [kind for kind, real in pairs if all(getattr(real, n) >= a for n, a in asked.items())]


def foreseen(row: Mapping[str, Any], kind: MachineType, known: Experience) -> Mapping[str, Any]:
    """Return the row of a machine on its way with what it will have, as far as that is known."""
    (real,) = usable([kind], known)
    if real is kind:
        return row
    names = ("cpu_milli", "memory_bytes", "disk_bytes")
    return {**row, **{f"{name}_capacity": getattr(real, name) for name in names}}
