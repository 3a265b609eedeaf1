"""Every invariant of a fleet, stated again from scratch.

Slow on purpose: nothing here trusts a derived column. `check` does it for a whole fleet: tests run
it after each step, simulated worlds now and then and at their end. `wrong_hosts` and `wrong_groups`
do it for some of a fleet, which is what a process in production can afford (`Sampler`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roost.base.errors import InvariantBroken
from roost.fleet.fleet import Fleet
from roost.fleet.groups import EMPTY, SCOPES
from roost.fleet.layout import (
    BASE,
    CELL_CPU,
    CELL_MEMORY,
    CPU,
    DEVICE_BEST,
    DEVICE_TOTAL,
    E_ENDS,
    EMPTY_END,
    ENDS,
    EXTRA_COLUMNS,
    KNOWN,
    MEMORY,
    MOST_RATIO_CPU,
    RATIO_BYTES,
    RATIOS,
    SLOTS,
    UNLIMITED,
    HostArrays,
    Int64Array,
    charge,
)
from roost.fleet.outlook import expected_use
from roost.model.hosts import Admin, Health, Scope
from roost.model.kept import place_of
from roost.model.resources import WHOLE_DEVICE

#: Hosts and groups of one sample, and VMs on those hosts: three milliseconds in all.
MOST_HOSTS, MOST_GROUPS, MOST_VMS = 64, 8, 500


def check(fleet: Fleet, *, over_capacity: bool = False) -> None:
    """Raise InvariantBroken at the first invariant that does not hold.

    `over_capacity` admits hosts that promised more than they have, which an operator can bring
    about by shrinking a host or placing by hand.
    """
    _check_tables(fleet)
    for wrong in wrong_hosts(fleet, np.arange(fleet.hosts.count)).values():
        raise InvariantBroken(wrong)
    _check_groups(fleet)
    for wrong in wrong_groups(fleet, range(len(fleet.groups))).values():
        raise InvariantBroken(wrong)
    if not over_capacity:
        _check_capacity(fleet)


class Sampler:
    """Checks a fleet piece by piece, from the first host and group to the last and again."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._row = self._group = 0
        self._begun = self._clean = -1  # heads of the log: when this round began, of a clean one
        self.wrong: dict[str, str] = {}  # host or group -> what is wrong with it

    def look(self) -> None:
        """Check some hosts and groups, and again those that were wrong before.

        Does nothing while nothing has changed since all of them were found right.
        """
        fleet = self._fleet
        if self._clean == fleet.changes.head:
            return
        if self._row == self._group == 0:
            self._begun = fleet.changes.head
        rows, groups = self._next_rows(), self._next_groups()
        known = [fleet.hosts.rows[name] for name in self.wrong if name in fleet.hosts.rows]
        known = known[:MOST_HOSTS]
        hosts = wrong_hosts(fleet, np.union1d(rows, np.array(known, np.int64)))
        for row in (*rows.tolist(), *known):
            self.wrong.pop(fleet.hosts.names[row], None)
        for group in groups:
            self.wrong.pop(_group_name(fleet, group), None)
        self.wrong |= {fleet.hosts.names[row]: said for row, said in hosts.items()}
        found = wrong_groups(fleet, groups)
        self.wrong |= {_group_name(fleet, group): said for group, said in found.items()}
        if self._row >= fleet.hosts.count and self._group >= len(fleet.groups):
            self._row = self._group = 0
            self._clean = self._begun if not self.wrong else -1

    def _next_rows(self) -> Int64Array:
        counted = self._fleet.hosts.arrays.vm_count[self._row : self._fleet.hosts.count]
        counted = counted[:MOST_HOSTS].cumsum()
        taken = max(1, int(np.searchsorted(counted, MOST_VMS, side="right")))
        first, self._row = self._row, min(self._row + taken, self._fleet.hosts.count)
        return np.arange(first, self._row)

    def _next_groups(self) -> range:
        first = self._group
        self._group = min(first + MOST_GROUPS, len(self._fleet.groups))
        return range(first, self._group)


def _group_name(fleet: Fleet, group: int) -> str:
    return f"group {fleet.groups.specs[group].name}"


def _expect(condition: object, message: str) -> None:
    if not condition:
        raise InvariantBroken(message)


def _check_tables(fleet: Fleet) -> None:
    hosts, vms = fleet.hosts, fleet.vms
    placed = vms.host[: vms.count]
    _expect(np.count_nonzero(placed >= 0) == vms.alive, "the number of VMs is wrong")
    astray = np.flatnonzero((placed >= 0) & ~hosts.present[placed])
    for number in astray[:1].tolist():
        raise InvariantBroken(f"VM {number} is on host row {placed[number]}, not registered")
    names = {hosts.names[row]: row for row in fleet.present_rows().tolist()}
    _expect(names == hosts.rows, "host names and rows disagree")
    _expect(
        {name: number for number, name in vms.names.items()} == vms.numbers,
        "VM names and numbers disagree",
    )


def wrong_hosts(fleet: Fleet, rows: Int64Array) -> dict[int, str]:
    """Return which of some hosts have columns that are not the sums of their VMs and holds."""
    hosts = fleet.hosts
    if not len(rows):
        return {}
    fleet.settle_ends()
    width = len(hosts.resources)
    fresh, at = _without_vms(fleet, rows), np.full(hosts.count, -1)
    at[rows] = np.arange(len(rows))
    placed = fleet.vms.host[: fleet.vms.count]
    here = np.flatnonzero((placed >= 0) & (at[placed] >= 0))
    special = (fleet.vms.devices[here] != 0) | (fleet.vms.cells[here] != 0)
    plain = here[~special]
    np.add.at(fresh.committed, at[placed[plain]], fleet.vms.demand[plain])
    np.add.at(fresh.vm_count, at[placed[plain]], 1)
    use = expected_use(fleet.vms.demand[plain], fleet.vms.expected[plain])
    np.add.at(fresh.predicted[:, :KNOWN], at[placed[plain]], use)
    ends = fresh.headroom[:, width + ENDS]
    np.maximum.at(ends, at[placed[plain]], fleet.vms.expected[plain, E_ENDS])
    fresh.headroom[:, width + SLOTS] -= fresh.vm_count
    for number in here[special].tolist():
        terms = fleet.terms[int(fleet.vms.terms[number])]
        milli = terms.devices.milli if terms.devices else 0
        devices, cells = int(fleet.vms.devices[number]), int(fleet.vms.cells[number])
        row = int(at[placed[number]])
        demand, expected = fleet.vms.demand[number], fleet.vms.expected[number]
        charge(fresh, row, demand, expected, milli, devices, cells, 1)
    held = np.zeros((len(rows), width), np.int64)
    for hold in fleet.holds.values():
        if at[hold.row] >= 0:
            held[at[hold.row]] += fleet.vector(hold.demand)
    for row, kept in fleet.kept.items():
        if at[row] >= 0:
            held[at[row], :BASE] += kept.limits[:BASE]
            fresh.headroom[at[row], width + SLOTS] -= kept.vms
            for resource, amount in kept.extended:
                held[at[row], hosts.resources.find(resource)] += amount
            for counter, amount in kept.parts:
                _keep_part(fresh, int(at[row]), counter, amount)
    fresh.headroom[:, :width] = fresh.capacity - fresh.committed - held
    _derive_headroom(fresh, width)
    takes = hosts.present[rows] & hosts.known[rows] & (hosts.health[rows] == Health.ONLINE)
    takes &= (hosts.admin[rows] == Admin.OPEN) & ~hosts.is_pressed(rows)
    # Causes before what follows from them: of each host the first that differs is said.
    columns: list[tuple[str, Any, Any]] = [("held", held, hosts.held)]
    columns += zip(HostArrays._fields, fresh._replace(takes=takes), hosts.arrays, strict=True)
    columns.sort(key=lambda column: column[0] == "headroom")
    wrong: dict[int, str] = {}
    for name, expected, actual in columns:
        differs = (expected != actual[rows]).reshape(len(rows), -1).any(axis=1)
        for index in np.flatnonzero(differs).tolist():
            row = int(rows[index])
            wrong.setdefault(
                row,
                f"column {name} of host {hosts.names[row]!r} is {actual[row].tolist()} "
                f"and should be {expected[index].tolist()}",
            )
    return wrong


def _keep_part(fresh: HostArrays, row: int, counter: str, amount: int) -> None:
    """Take off what is kept of one device or cell, as far as it is free."""
    position, part = place_of(counter)
    is_device = counter.startswith("device:")
    free = fresh.device_free[row] if is_device else fresh.cell_free[row, :, part]
    if position < len(free) and free[position] >= 0:
        free[position] -= min(amount, int(free[position]))


def _without_vms(fleet: Fleet, rows: Int64Array) -> HostArrays:
    """Return the columns of some hosts as they are without any VM."""
    hosts = fleet.hosts
    old = HostArrays._make(column[rows] for column in hosts.arrays)  # copies
    width = len(hosts.resources)
    headroom = np.zeros_like(old.headroom)
    headroom[:, width + SLOTS] = np.where(hosts.max_vms[rows] < 0, UNLIMITED, hosts.max_vms[rows])
    headroom[:, width + ENDS] = EMPTY_END
    _expect(headroom.shape[1] == width + EXTRA_COLUMNS, "headroom has a wrong width")
    positions = np.arange(old.cell_capacity.shape[1])
    is_cell = positions[np.newaxis, :] < hosts.cell_count[rows][:, np.newaxis]
    places = np.arange(old.device_free.shape[1])
    is_device = places[np.newaxis, :] < hosts.device_count[rows][:, np.newaxis]
    predicted = old.predicted.copy()
    predicted[:, :KNOWN] = hosts.predicted_base[rows]
    return old._replace(
        headroom=headroom,
        predicted=predicted,
        committed=np.zeros_like(old.committed),
        vm_count=np.zeros_like(old.vm_count),
        device_free=np.where(is_device, WHOLE_DEVICE, -1).astype(np.int64),
        cell_free=np.where(is_cell[:, :, np.newaxis], old.cell_capacity, -1).astype(np.int64),
    )


def _derive_headroom(fresh: HostArrays, width: int) -> None:
    """Write the columns of headroom that follow from the others."""
    derived = fresh.headroom[:, width:]
    free = np.maximum(fresh.device_free, 0)
    derived[:, DEVICE_BEST] = free.max(axis=1, initial=0)
    derived[:, DEVICE_TOTAL] = free.sum(axis=1)
    derived[:, CELL_CPU] = fresh.cell_free[:, :, 0].max(axis=1, initial=0)
    derived[:, CELL_MEMORY] = fresh.cell_free[:, :, 1].max(axis=1, initial=0)
    cpu = np.minimum(fresh.headroom[:, CPU], MOST_RATIO_CPU)
    for step, ratio in enumerate(RATIO_BYTES):
        derived[:, RATIOS + step] = np.minimum(cpu * ratio, fresh.headroom[:, MEMORY])


def wrong_groups(fleet: Fleet, groups: Sequence[int]) -> dict[int, str]:
    """Return which of some groups count their members otherwise than the VMs say."""
    wrong: dict[int, str] = {}
    if not groups:
        return wrong
    table, vms = fleet.groups.arrays, fleet.vms
    sets = len(fleet.groups.sets())
    starts, members = table.set_start[: sets + 1], table.set_groups
    placed, group_set = vms.host[: vms.count], vms.group_set[: vms.count]
    alive = np.flatnonzero((placed >= 0) & (group_set > 0))
    for group in groups:
        positions = np.flatnonzero(members[: starts[sets]] == group)
        its_sets = np.zeros(sets, bool)
        its_sets[np.searchsorted(starts, positions, side="right") - 1] = True
        rows = placed[alive[its_sets[group_set[alive]]]]
        said = f"group {fleet.groups.specs[group].name!r}"
        if len(rows) != table.members[group]:
            wrong[group] = f"{said} has {len(rows)} members and counts {table.members[group]}"
            continue
        for scope in Scope:
            where = fleet.hosts.arrays.domain[rows, scope]
            found, counts = np.unique(where[where >= 0], return_counts=True)
            expected = dict(zip(found.tolist(), counts.tolist(), strict=True))
            if expected != _counted(fleet, group, int(scope)):
                wrong[group] = f"{said} counts its members in {scope.name} domains wrong"
    return wrong


def _counted(fleet: Fleet, group: int, scope: int) -> dict[int, int]:
    """Return a group's members by fault domain as its chain of entries has them."""
    table, counted = fleet.groups.arrays, {}
    entry, steps = int(table.heads[group, scope]), 0
    while entry != EMPTY and steps <= len(table.keys):
        key, count = int(table.keys[entry]), int(table.counts[entry])
        if count:
            counted[key & 0xFFFFFFFF if key >> 32 == group * SCOPES + scope else -1] = count
        entry, steps = int(table.chain[entry]), steps + 1
    return counted


def _check_groups(fleet: Fleet) -> None:
    expected: dict[tuple[int, int, int], int] = {}
    members = [0] * len(fleet.groups)
    for number in range(fleet.vms.count):
        row = int(fleet.vms.host[number])
        if row < 0:
            continue
        for group in fleet.groups.set_members(int(fleet.vms.group_set[number])):
            members[group] += 1
            for scope in Scope:
                domain = int(fleet.hosts.arrays.domain[row, scope])
                if domain >= 0:
                    key = (group, int(scope), domain)
                    expected[key] = expected.get(key, 0) + 1
    counted = {}
    table = fleet.groups.arrays
    for entry in np.flatnonzero((table.keys >= 0) & (table.counts != 0)).tolist():
        owner, domain = int(table.keys[entry]) >> 32, int(table.keys[entry]) & 0xFFFFFFFF
        counted[(owner // 3, owner % 3, domain)] = int(table.counts[entry])
    _expect(expected == counted, "group counts differ from the VMs")
    _expect(members == table.members[: len(members)].tolist(), "group sizes differ from the VMs")


def _check_capacity(fleet: Fleet) -> None:
    arrays = fleet.hosts.arrays
    count = fleet.hosts.count
    over = np.argwhere(
        arrays.committed[:count] + fleet.hosts.held[:count] > arrays.capacity[:count]
    )
    for row, resource in over[:1].tolist():
        raise InvariantBroken(
            f"host {fleet.hosts.names[row]!r} promised more "
            f"{fleet.hosts.resources[resource]} than it has"
        )
    _expect((arrays.device_free[:count] >= -1).all(), "a device is promised more than once")
    _expect((arrays.cell_free[:count] >= -1).all(), "a NUMA cell is promised more than it has")
