"""What machines of a type have turned out to have: plans count on that, not on a provider's word.

    8 GiB by the provider  ->  a machine comes, its worker says 7.6 GiB  ->  the next is taken for
                               one of 7.6 GiB; it is rented, charged and billed as what it is called

The last machines of a pool and type that have spoken count, each as the whole that it is: two that
came with more memory and with more cores are no machine with more of both, and a job that asks for
both would wait for one for ever, with one rented after the other. Of a type whose last machines
could not hold a job none is rented for it; a bad one among them does not speak for the others. They
are forgotten some hours after the newest of them was wanted: then one is rented again as its
provider describes it, and tells what it has. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roost.model.job import MachineType

#: How long a machine that was wanted then says what another of its type would have.
REMEMBERED_MS = 6 * 3_600_000
#: Of how many machines of a type, the newest ones, it is known what they came with.
LAST = 4

Amounts = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Spoken:
    """A machine of a type that has spoken: what its type was called then, and what it has."""

    wanted_ms: int
    machine: str
    called: Amounts  # what its provider said of the type
    has: Amounts


#: What is known of a pool's types, by their names: what their last machines came with.
Experience = Mapping[str, Sequence[Spoken]]
NO_EXPERIENCE: Experience = {}


def newest(spoken: Iterable[Spoken]) -> tuple[Spoken, ...]:
    """Return the last machines of a type that count, the newest first, each once.

    Where the type was called something else before, what came then says nothing of it.
    """
    each_once = {each.machine: each for each in spoken}.values()
    found = sorted(each_once, key=lambda each: (-each.wanted_ms, each.machine))
    return tuple(each for each in found if each.called == found[0].called)[:LAST]


def amounts_of(kind: MachineType) -> Amounts:
    """Return what a provider says that a machine of a type has."""
    return kind.cpu_milli, kind.memory_bytes, kind.disk_bytes


def forms(kind: MachineType, known: Experience) -> list[MachineType]:
    """Return a type as its machines may come, with the amounts that a job may count on.

    It is the type itself while nothing is known of it; a form that another one exceeds is left out.
    """
    came = list(dict.fromkeys(_came(kind, known)))
    best = [each for each in came if not any(_exceeds(other, each) for other in came)]
    return [_of(kind, each) for each in best] or [kind]


def usable(
    types: Iterable[MachineType], known: Experience
) -> list[tuple[MachineType, MachineType]]:
    """Return types, in their order, each with every form in which its machines come."""
    return [(kind, form) for kind in types for form in forms(kind, known)]


def holding(
    types: Sequence[MachineType], known: Experience, asked: Mapping[str, int]
) -> list[MachineType]:
    """Return the types, as providers describe them, of which a machine would hold a job."""
    return [
        kind
        for kind in types
        if any(all(getattr(f, n) >= a for n, a in asked.items()) for f in forms(kind, known))
    ]


def foreseen(row: Mapping[str, Any], kind: MachineType, known: Experience) -> Mapping[str, Any]:
    """Return the row of a machine on its way with what it will have, as far as that is known.

    That is the most of each amount: whatever it was rented for is placed there in thought, in which
    form it may come, and no second machine is rented for that meanwhile.
    """
    came = _came(kind, known)
    if not came:
        return row
    most = map(max, zip(*came, strict=True))
    names = ("cpu_milli", "memory_bytes", "disk_bytes")
    return {**row, **{f"{n}_capacity": part for n, part in zip(names, most, strict=True)}}


def _came(kind: MachineType, known: Experience) -> list[Amounts]:
    called = amounts_of(kind)
    return [each.has for each in known.get(kind.name, ()) if each.called == called]


def _exceeds(one: Amounts, other: Amounts) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _of(kind: MachineType, came: Amounts) -> MachineType:
    if came == amounts_of(kind):
        return kind
    cpu, memory, disk = came
    return replace(kind, cpu_milli=cpu, memory_bytes=memory, disk_bytes=disk)
