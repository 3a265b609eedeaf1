"""Which machines go when a limit was lowered below what is rented. Pure.

    max machines 4 -> 2    on their way  ->  given back
                           idle          ->  given back, the dearest first
                           busy          ->  take nothing new, those with the fewest jobs first;
                                             given back when what runs there has ended by itself

Machines are taken in this order until what stays is within the limit, of pools first and of
accounts then. What leaves already is not taken for it again, though it counts against the limit
until its provider says that it is gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roost.base.units import format_cpu

#: States of machines that are on their way back.
LEAVING = ("draining", "returning")


@dataclass(frozen=True, slots=True)
class Rented:
    """A machine as limits count it, and how much it would be missed."""

    id: str
    pool: str
    account: str
    state: str
    jobs: int
    amounts: Mapping[str, int]  # machines, cpu_milli and micro, as they are charged
    wanted_ms: int = 0


@dataclass(frozen=True, slots=True)
class Passed:
    """A pool or an account that has more than it may have: what it may have of each amount."""

    whose: Literal["pool", "account"]
    name: str
    most: Mapping[str, int]


def passed(
    whose: Literal["pool", "account"], row: Mapping[str, Any], names: Sequence[str]
) -> Passed | None:
    """Return the limits of a pool's or an account's row if it has more than one of them allows."""
    most = {name: int(m) for name in names if (m := row[f"max_{name}"]) is not None}
    if all(row[f"{name}_used"] <= m for name, m in most.items()):
        return None
    return Passed(whose, row["name"], most)


def to_leave(limits: Iterable[Passed], machines: Sequence[Rented]) -> list[tuple[Rented, Passed]]:
    """Return the machines that must leave, in the order in which they are chosen, and for whom."""
    gone = {each.id for each in machines if each.state in LEAVING}
    found: list[tuple[Rented, Passed]] = []
    for limit in sorted(limits, key=lambda each: (each.whose != "pool", each.name)):
        mine = [m for m in machines if getattr(m, limit.whose) == limit.name and m.id not in gone]
        over = {n: sum(m.amounts[n] for m in mine) - most for n, most in limit.most.items()}
        for machine in sorted(mine, key=_missed):
            if any(over[n] > 0 and machine.amounts[n] > 0 for n in over):
                found.append((machine, limit))
                gone.add(machine.id)
                over = {n: each - machine.amounts[n] for n, each in over.items()}
    return found


def _missed(machine: Rented) -> tuple[int, int, int, int, str]:
    """Return how much a machine would be missed, the least first."""
    stage = 0 if machine.state != "ready" else 2 if machine.jobs else 1
    dear, newest = -machine.amounts["micro"], -machine.wanted_ms
    return stage, machine.jobs, dear, newest, machine.id


def words(limit: Passed, row: Mapping[str, Any]) -> str:
    """Return what is said of a pool or an account that has more than it may have."""
    over = {n: (row[f"{n}_used"], most) for n, most in limit.most.items()}
    had = [_amount(n, used, most) for n, (used, most) in over.items() if used > most]
    return (
        f"{limit.whose} {limit.name!r} has {' and '.join(had)} since its limits were lowered: "
        "machines beyond them take no new jobs and go back when theirs have ended"
    )


def _amount(name: str, used: int, most: int) -> str:
    if name == "machines":
        return f"{used} of {most} machines"
    if name == "cpu_milli":
        return f"{format_cpu(used)} of {format_cpu(most)} cores"
    return f"a rent of {used / 1e6:.4g} of {most / 1e6:.4g} an hour"
