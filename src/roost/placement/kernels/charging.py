"""One VM charged to its host and counted in its groups.

`charge_vm` is what a batch does with each VM it commits. `Charger` does it for the fleet, which
keeps its books in plain Python until an engine lends it this.
"""

from typing import NamedTuple

from roost.fleet.fleet import Fleet
from roost.fleet.groups import GroupArrays
from roost.fleet.layout import (
    HostArrays,
    Int32Array,
    Int64Array,
    charge,
    refresh_extras,
    refresh_ratios,
)
from roost.fleet.vms import VMTable
from roost.placement.kernels.addresses import addresses, groups_at, hosts_at, one, short, two
from roost.placement.kernels.compiling import inlined, int64, kernel, view_maker
from roost.placement.kernels.running import FORM, running, runs_python
from roost.placement.kernels.tally import add_member

charge_host = kernel(charge)
refresh_host_extras = kernel(refresh_extras)
refresh_host_ratios = inlined(refresh_ratios)


class VMArrays(NamedTuple):
    """The VM columns that say what a VM is charged for; see `VMTable`."""

    host: Int32Array
    demand: Int64Array
    group_set: Int32Array
    devices: Int64Array
    cells: Int64Array
    expected: Int64Array


@inlined
def charge_vm(
    hosts: HostArrays,
    groups: GroupArrays,
    row: int,
    demand: Int64Array,
    expected: Int64Array,
    milli: int,
    devices: int,
    cells: int,
    group_set: int,
    sign: int,
) -> None:
    """Add (sign 1) or take away (sign -1) one VM; the groups' table must have room."""
    resources = len(demand)
    charge_host(hosts, row, demand, expected, milli, devices, cells, sign)
    refresh_host_ratios(hosts.headroom, row, resources)
    if devices or cells:
        refresh_host_extras(hosts, row, resources)
    for at in range(groups.set_start[group_set], groups.set_start[group_set + 1]):
        add_member(groups, groups.set_groups[at], hosts.domain[row], sign)


@inlined
def charge_number(
    hosts: HostArrays, groups: GroupArrays, vms: VMArrays, number: int, milli: int, sign: int
) -> None:
    """Do the same to the VM of this number."""
    charge_vm(
        hosts,
        groups,
        int64(vms.host[number]),
        vms.demand[number],
        vms.expected[number],
        milli,
        vms.devices[number],
        vms.cells[number],
        vms.group_set[number],
        sign,
    )


#: Where the entries of each bundle begin.
_GROUPS = len(HostArrays._fields)
_VMS = _GROUPS + len(GroupArrays._fields)


@view_maker
def charge_at(e: Int64Array, number: int, milli: int, sign: int) -> None:
    """Build the bundles from their addresses and charge the VM of this number."""
    vms = VMArrays(
        short(e, _VMS),
        two(e, _VMS + 1),
        short(e, _VMS + 2),
        one(e, _VMS + 3),
        one(e, _VMS + 4),
        two(e, _VMS + 5),
    )
    charge_number(hosts_at(e, 0), groups_at(e, _GROUPS), vms, number, milli, sign)


class Charger:
    """Charges the VMs of one fleet. It knows the tables, not the fleet, which knows it."""

    __slots__ = ("_entries", "_groups", "_host_table", "_hosts", "_registry", "_table", "_vms")

    def __init__(self, fleet: Fleet) -> None:
        self._host_table, self._registry, self._table = fleet.hosts, fleet.groups, fleet.vms
        self._write_down()

    def _write_down(self) -> None:
        self._hosts, self._groups = self._host_table.arrays, self._registry.arrays
        self._vms = _columns(self._table)
        self._entries = addresses((*self._hosts, *self._groups, *self._vms))

    def __call__(self, number: int, milli: int, sign: int) -> None:
        """Add or take away the VM of this number."""
        if not (
            self._table.host is self._vms.host  # all columns grow together
            and self._table.demand is self._vms.demand
            and self._host_table.arrays is self._hosts
            and self._registry.arrays is self._groups
        ):
            self._write_down()
        if FORM.python and runs_python():
            running(charge_number)(self._hosts, self._groups, self._vms, number, milli, sign)
        else:
            charge_at(self._entries, number, milli, sign)


def _columns(table: VMTable) -> VMArrays:
    return VMArrays(
        table.host, table.demand, table.group_set, table.devices, table.cells, table.expected
    )
