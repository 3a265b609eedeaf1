"""Every invariant of a fleet, stated again from scratch.

Slow on purpose: nothing here trusts a derived column. Tests run it after each step; production
samples it.
"""

import numpy as np

from roost.base.errors import InvariantBroken
from roost.fleet.fleet import Fleet
from roost.fleet.layout import (
    EXTRA_COLUMNS,
    SLOTS,
    UNLIMITED,
    HostArrays,
    charge,
    refresh_extras,
    refresh_ratios,
)
from roost.model.hosts import Admin, Health, Scope
from roost.model.resources import WHOLE_DEVICE


def check(fleet: Fleet, *, over_capacity: bool = False) -> None:
    """Raise InvariantBroken at the first invariant that does not hold.

    `over_capacity` admits hosts that promised more than they have, which an operator can bring
    about by shrinking a host or placing by hand.
    """
    _check_columns(fleet)
    _check_groups(fleet)
    if not over_capacity:
        _check_capacity(fleet)


def _expect(condition: object, message: str) -> None:
    if not condition:
        raise InvariantBroken(message)


def _check_columns(fleet: Fleet) -> None:
    hosts, arrays = fleet.hosts, fleet.hosts.arrays
    count, width = hosts.count, len(hosts.resources)
    fresh = _without_vms(fleet)
    alive = [n for n in range(fleet.vms.count) if fleet.vms.host[n] >= 0]
    _expect(len(alive) == fleet.vms.alive, "the number of VMs is wrong")
    for number in alive:
        row = int(fleet.vms.host[number])
        _expect(hosts.present[row], f"VM {number} is on host row {row}, which is not registered")
        terms = fleet.terms[int(fleet.vms.terms[number])]
        milli = terms.devices.milli if terms.devices else 0
        devices, cells = int(fleet.vms.devices[number]), int(fleet.vms.cells[number])
        charge(fresh, row, fleet.vms.demand[number], milli, devices, cells, 1)
    held = np.zeros_like(hosts.held)
    for hold in fleet.holds.values():
        held[hold.row] += fleet.vector(hold.demand)
    _expect((held == hosts.held).all(), "held differs from the sum of the holds")
    fresh.headroom[:count, :width] = (
        arrays.capacity[:count] - fresh.committed[:count] - held[:count]
    )
    for row in range(count):
        refresh_extras(fresh, row, width)
        refresh_ratios(fresh.headroom, row, width)
    for name, expected, actual in zip(HostArrays._fields, fresh, arrays, strict=True):
        differs = np.argwhere(expected[:count] != actual[:count])
        _expect(len(differs) == 0, f"column {name} is wrong at {differs[:3].tolist()}")
    online = hosts.health[:count] == Health.ONLINE
    takes = hosts.present[:count] & hosts.known[:count] & online
    takes &= hosts.admin[:count] == Admin.OPEN
    _expect((takes == arrays.takes[:count]).all(), "column takes is wrong")
    names = {hosts.names[row]: row for row in np.flatnonzero(hosts.present[:count]).tolist()}
    _expect(names == hosts.rows, "host names and rows disagree")
    _expect(
        {name: number for number, name in fleet.vms.names.items()} == fleet.vms.numbers,
        "VM names and numbers disagree",
    )


def _without_vms(fleet: Fleet) -> HostArrays:
    hosts = fleet.hosts
    old = hosts.arrays
    width = len(hosts.resources)
    headroom = np.zeros_like(old.headroom)
    slots = np.where(hosts.max_vms < 0, UNLIMITED, hosts.max_vms)
    # A row that no host has used yet holds zeros, and a removed host keeps its last values.
    used = np.arange(len(slots)) < hosts.count
    headroom[:, width + SLOTS] = np.where(used, slots, 0)
    _expect(headroom.shape[1] == width + EXTRA_COLUMNS, "headroom has a wrong width")
    return HostArrays(
        headroom=headroom,
        committed=np.zeros_like(old.committed),
        capacity=old.capacity.copy(),
        vm_count=np.zeros_like(old.vm_count),
        domain=old.domain.copy(),
        device_free=np.where(old.device_free >= 0, WHOLE_DEVICE, -1).astype(np.int64),
        device_info=old.device_info.copy(),
        cell_free=np.where(
            np.any(old.cell_capacity > 0, axis=2, keepdims=True), old.cell_capacity, -1
        ).astype(np.int64),
        cell_capacity=old.cell_capacity.copy(),
        takes=old.takes.copy(),
    )


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
