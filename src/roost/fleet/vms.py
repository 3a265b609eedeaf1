"""The VM columns: one row per placed VM; rows of removed VMs are used again.

| column | dtype, shape | unit and meaning |
|---|---|---|
| host | int32 [vms] | row of its host, -1 when the row is unused |
| demand | int64 [vms, resources] | amounts |
| terms | int32 [vms] | number of its interned `HostRequirements` |
| group_set | int32 [vms] | number of its interned set of groups |
| devices, cells | int64 [vms] | bit masks of positions on the host |
| expected | int64 [vms, 4] | cpu and memory it will use, -1 unknown; its end; its day (`E_DAY`) |
| leaves | int8 [vms] | how it may make room: `STAYS`, `MOVES` or `STOPS`; unknown is `STAYS` |
| priority, since_ms | int64 [vms] | of one that may: its priority, and since when there is it |

Names are kept only for VMs that have one: a simulated million needs none.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from roost.fleet.layout import UNKNOWN, Int32Array, Int64Array

#: How a VM may make room for a more important one: never, by a move, or also by being stopped.
STAYS, MOVES, STOPS = range(3)


class VMTable:
    """Every placed VM, as columns."""

    def __init__(self, resources: int, capacity: int = 16) -> None:
        self.count = 0  # rows in use or free below this number
        self.alive = 0
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        self._free: dict[int, None] = {}  # rows to use again, the last freed first
        self._allocate(capacity, resources)

    def _allocate(self, capacity: int, resources: int) -> None:
        self.host = np.full(capacity, -1, np.int32)
        self.demand = np.zeros((capacity, resources), np.int64)
        self.terms = np.zeros(capacity, np.int32)
        self.group_set = np.zeros(capacity, np.int32)
        self.devices = np.zeros(capacity, np.int64)
        self.cells = np.zeros(capacity, np.int64)
        self.expected = np.full((capacity, len(UNKNOWN)), UNKNOWN, np.int64)
        self.leaves = np.zeros(capacity, np.int8)
        self.priority = np.zeros(capacity, np.int64)
        self.since_ms = np.zeros(capacity, np.int64)

    def ensure(self, rows: int, resources: int) -> None:
        """Make room for so many rows and resources."""
        capacity, width = self.demand.shape
        if rows <= capacity and resources == width:
            return
        while capacity < rows:
            capacity += max(16, capacity // 2)
        names = (
            *("host", "demand", "terms", "group_set", "devices", "cells"),
            *("expected", "leaves", "priority", "since_ms"),
        )
        before: list[npt.NDArray[Any]] = [getattr(self, name) for name in names]
        self._allocate(capacity, resources)
        for name, old in zip(names, before, strict=True):
            getattr(self, name)[tuple(slice(0, length) for length in old.shape)] = old

    def add(
        self,
        host: int,
        demand: Int64Array,
        terms: int,
        group_set: int,
        devices: int,
        cells: int,
        expected: Int64Array | None = None,
    ) -> int:
        """Fill a free row with a VM and return its number."""
        if self._free:
            number = self._free.popitem()[0]
        else:
            number = self.count
            if number == len(self.host):
                self.ensure(number + 1, self.demand.shape[1])
            self.count += 1
        self.host[number] = host
        self.demand[number] = self.widened(demand)
        self.terms[number] = terms
        self.group_set[number] = group_set
        self.devices[number] = devices
        self.cells[number] = cells
        self.expected[number] = UNKNOWN if expected is None else expected
        self.leaves[number] = STAYS
        self.alive += 1
        return number

    def widened(self, demand: Int64Array) -> Int64Array:
        """Return a demand with all columns; one from before some were added has fewer."""
        width = self.demand.shape[1]
        if len(demand) == width:
            return demand
        wide = np.zeros(width, np.int64)
        wide[: len(demand)] = demand
        return wide

    def add_many(
        self,
        host: Int32Array,
        demand: Int64Array,
        terms: Int32Array,
        group_set: Int32Array,
        devices: Int64Array,
        cells: Int64Array,
        expected: Int64Array | None = None,
    ) -> int:
        """Append many rows and return the number of the first."""
        first = self.count
        end = first + len(host)
        self.ensure(end, self.demand.shape[1])
        self.host[first:end] = host
        self.demand[first:end] = demand
        self.terms[first:end] = terms
        self.group_set[first:end] = group_set
        self.devices[first:end] = devices
        self.cells[first:end] = cells
        self.expected[first:end] = UNKNOWN if expected is None else expected
        self.leaves[first:end] = STAYS
        self.count = end
        self.alive += len(host)
        return first

    def set_standing(
        self,
        number: int | Int64Array,
        leaves: int | Int64Array,
        priority: int | Int64Array,
        since_ms: int | Int64Array,
    ) -> None:
        """Set how a VM, or many, may make room for others, and what they are compared by."""
        self.leaves[number] = leaves
        self.priority[number] = priority
        self.since_ms[number] = since_ms

    def standing(self, number: int) -> tuple[int, int, int]:
        """Return how a VM may make room, its priority, and since when there is it."""
        return (
            int(self.leaves[number]), int(self.priority[number]), int(self.since_ms[number])
        )  # fmt: skip

    def remove(self, number: int) -> None:
        """Free the row of a removed VM."""
        self.host[number] = -1
        self._free[number] = None
        self.alive -= 1
        name = self.names.pop(number, None)
        if name is not None:
            del self.numbers[name]

    def forget_from(self, first: int) -> None:
        """Undo `add_many`: truncate the rows from `first` on, which are all free.

        Left among the free rows they would be used before older ones, and a VM that comes back
        by an earlier undo would get another number than it had.
        """
        for number in range(first, self.count):
            del self._free[number]
        self.count = first

    def drop_last(self, count: int) -> None:
        """Free the last rows, which must be in use and have no names."""
        self.host[self.count - count : self.count] = -1
        self.count -= count
        self.alive -= count

    def name(self, number: int, name: str) -> None:
        """Give a VM its name."""
        self.names[number] = name
        self.numbers[name] = number

    def name_many(self, first: int, names: list[str]) -> None:
        """Give VMs that follow each other their names."""
        numbers = range(first, first + len(names))
        self.names.update(zip(numbers, names, strict=True))
        self.numbers.update(zip(names, numbers, strict=True))

    def on_host(self, row: int) -> Int64Array:
        """Return the numbers of the VMs on one host."""
        return np.flatnonzero(self.host[: self.count] == row)

    def by_host(self, hosts: int) -> list[Int64Array]:
        """Return the numbers of the VMs on each of the first so many hosts, in one pass."""
        here = self.host[: self.count]
        order = np.argsort(here, kind="stable").astype(np.int64)
        return np.split(order, np.searchsorted(here[order], np.arange(hosts + 1)))[1:-1]

    def copy(self) -> "VMTable":
        """Return an independent copy."""
        other = VMTable.__new__(VMTable)
        for name, value in vars(self).items():
            copied = value.copy() if isinstance(value, np.ndarray | list | dict) else value
            setattr(other, name, copied)
        return other
