"""Amounts of what every host has, and the only place where they are listed.

The fields of `Amounts` are the columns of vms and claims, with `_capacity` and `_committed` those
of host_amounts, with `_quota` and `_used` those of projects. Statements, sums and comparisons are
made from the same names: a further base resource is one more field here, its columns in rows.py and
a migration. Resources that only some hosts have are rows of host_counters instead.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple


class Amounts(NamedTuple):
    """So much of each base resource: a demand, a capacity, a sum, or a difference."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0

    @classmethod
    def of(cls, row: object) -> "Amounts":
        """Return the amounts of a row or a demand that has them as attributes."""
        return tuple.__new__(cls, _fields_of(row))

    @classmethod
    def total(cls, each: Iterable["Amounts"]) -> "Amounts":
        """Return the sum of many amounts."""
        return cls._make(map(sum, zip(NOTHING, *each, strict=True)))

    @classmethod
    def in_columns(cls, row: Mapping[str, Any], suffix: str) -> "Amounts":
        """Return the amounts in a row's columns of that suffix: capacity, committed or used."""
        return cls._make(row[f"{name}_{suffix}"] for name in AMOUNTS)

    def columns(self, suffix: str) -> dict[str, int]:
        """Return the amounts as row columns of that suffix."""
        return {f"{name}_{suffix}": amount for name, amount in zip(AMOUNTS, self, strict=True)}

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum of two amounts."""
        return Amounts._make(a + b for a, b in zip(self, other, strict=True))

    def minus(self, other: "Amounts") -> "Amounts":
        """Return the difference of two amounts."""
        return Amounts._make(a - b for a, b in zip(self, other, strict=True))

    def negative(self) -> "Amounts":
        """Return the amounts negated, to give them back."""
        return NOTHING.minus(self)

    def greatest(self, other: "Amounts") -> "Amounts":
        """Return the greater of two amounts, resource by resource."""
        return Amounts._make(map(max, self, other))

    def fits(self, committed: "Amounts", capacity: "Amounts") -> bool:
        """Say whether a host with these sums can take so much more: what grows must fit."""
        return all(
            more <= 0 or have + more <= most
            for more, have, most in zip(self, committed, capacity, strict=True)
        )


#: The names of the base resources.
AMOUNTS = Amounts._fields
#: What a host promises and a project uses: the base resources and the number of VMs.
LIMITS = (*AMOUNTS, "vms")
NOTHING = Amounts()

_fields_of = attrgetter(*AMOUNTS)
