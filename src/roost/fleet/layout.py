"""The columns that decisions read, as bundles of arrays, and the meaning of every column.

`HostArrays` is handed whole to the placement kernels, so its fields are arrays and nothing else.

| field | dtype, shape | unit and meaning |
|---|---|---|
| headroom | int64 [hosts, resources + 19] | what is left; the index prunes on it, see below |
| committed | int64 [hosts, resources] | promised to VMs |
| capacity | int64 [hosts, resources] | (total - reserve) x overcommit |
| vm_count | int64 [hosts] | VMs on the host |
| domain | int64 [hosts, 3] | fault domain by `Scope`: the host itself, rack, zone; -1 unknown |
| device_free | int64 [hosts, devices] | free thousandths of each device; -1 where there is none |
| device_info | int64 [hosts, devices, 3] | model number, memory bytes, 1 if shareable |
| cell_free | int64 [hosts, cells, 2] | free cpu and memory of each NUMA cell; -1 where none |
| cell_capacity | int64 [hosts, cells, 2] | cpu and memory of each NUMA cell; 0 where none |
| takes | bool [hosts] | present, known, online, open and not under pressure: takes new VMs |
| total | int64 [hosts, resources] | what the host has; -1 where nobody could read it |
| predicted | int64 [hosts, 3] | predicted use of cpu (millicores) and memory (bytes); 1 if known |

After the resources, headroom has columns for VM slots, devices and NUMA cells, one for the time
(seconds since the epoch) at which the last VM is expected to be gone, and then one for
each of 13 steady ratios of memory to cpu: min(cpu x ratio, memory). A host that can take some cpu
and some memory *together* shows it in the column of that ratio, while the largest free cpu and the
largest free memory of a block of hosts may belong to two different hosts.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roost.model.outlook import NEVER_S

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

#: Columns of `headroom` after the resources: offsets from the number of resources.
SLOTS = 0  # VMs that max_vms still admits
DEVICE_BEST = 1  # most free thousandths on one device
DEVICE_TOTAL = 2  # free thousandths over all devices
CELL_CPU = 3  # most free cpu in one NUMA cell
CELL_MEMORY = 4  # most free memory in one NUMA cell
ENDS = 5  # when the last VM is expected to be gone; EMPTY_END of a host without any
RATIOS = 6  # first of the columns min(cpu x ratio, memory)

#: Bytes of memory per millicore: from 0.5 to 32 GiB per core, each 1.41 times the one before.
#: Python integers, because compiled code takes a tuple of them as constants.
RATIO_BYTES = tuple(int(2**30 / 2 * 2 ** (step / 2) / 1000) for step in range(13))
RATIO_COUNT = len(RATIO_BYTES)
EXTRA_COLUMNS = RATIOS + RATIO_COUNT

#: Cpu counted in the ratio columns; more would overflow, and no host comes near it.
MOST_RATIO_CPU = 2**37

#: Headroom of a host that does not limit its number of VMs.
UNLIMITED = 2**40

#: When the last VM of an empty host is gone: before every other.
EMPTY_END = -(2**60)

#: Columns of `HostArrays.predicted` after cpu and memory.
KNOWN = 2

#: Columns of what is expected of a VM: cpu and memory, -1 unknown; its end, `NEVER_S` unknown; the
#: course of its cpu through a day (`DayCourse.packed`), 0 unknown.
E_CPU, E_MEMORY, E_ENDS, E_DAY = range(4)
UNKNOWN = (-1, -1, NEVER_S, 0)

#: Number of resources every host has: cpu, memory, disk.
BASE = 3
CPU, MEMORY, DISK = 0, 1, 2


class HostArrays(NamedTuple):
    """The host columns a decision reads and changes."""

    headroom: Int64Array
    committed: Int64Array
    capacity: Int64Array
    vm_count: Int64Array
    domain: Int64Array
    device_free: Int64Array
    device_info: Int64Array
    cell_free: Int64Array
    cell_capacity: Int64Array
    takes: BoolArray
    total: Int64Array
    predicted: Int64Array


def copied(hosts: HostArrays) -> HostArrays:
    """Return an independent copy of the host columns."""
    return HostArrays._make(array.copy() for array in hosts)


def refresh_ratios(headroom: Int64Array, row: int, resources: int) -> None:
    """Recompute the ratio columns of one host's headroom."""
    cpu = min(headroom[row, CPU], MOST_RATIO_CPU)
    memory = headroom[row, MEMORY]
    for step in range(RATIO_COUNT):
        headroom[row, resources + RATIOS + step] = min(cpu * RATIO_BYTES[step], memory)


_RATIO_ROW = np.array(RATIO_BYTES, np.int64)


def refresh_ratio_columns(headroom: Int64Array, resources: int) -> None:
    """Recompute the ratio columns of one host's row in one array operation."""
    cpu = min(int(headroom[CPU]), MOST_RATIO_CPU)
    np.minimum(cpu * _RATIO_ROW, headroom[MEMORY], out=headroom[resources + RATIOS :])


def refresh_extras(hosts: HostArrays, row: int, resources: int) -> None:
    """Recompute the device and cell columns of one host's headroom."""
    best = 0
    total = 0
    for device in range(hosts.device_free.shape[1]):
        free = hosts.device_free[row, device]
        if free > 0:
            total += free
            best = max(best, free)
    hosts.headroom[row, resources + DEVICE_BEST] = best
    hosts.headroom[row, resources + DEVICE_TOTAL] = total
    cell_cpu = 0
    cell_memory = 0
    for cell in range(hosts.cell_free.shape[1]):
        cell_cpu = max(cell_cpu, hosts.cell_free[row, cell, 0])
        cell_memory = max(cell_memory, hosts.cell_free[row, cell, 1])
    hosts.headroom[row, resources + CELL_CPU] = cell_cpu
    hosts.headroom[row, resources + CELL_MEMORY] = cell_memory


def charge(
    hosts: HostArrays,
    row: int,
    demand: Int64Array,
    expected: Int64Array,
    milli: int,
    devices: int,
    cells: int,
    sign: int,
) -> None:
    """Add (sign 1) or take away (sign -1) one VM's demand on one host.

    A VM that leaves may have been the last to end: the column of that is lowered by the caller.

    `devices` and `cells` are bit masks of positions. Two cells share cpu and memory: the lower one
    takes the larger half when the amount is odd. Compiled by the kernels as it stands, so it uses
    nothing but arrays and integers.
    """
    resources = hosts.committed.shape[1]
    for resource in range(resources):
        amount = sign * demand[resource]
        hosts.committed[row, resource] += amount
        hosts.headroom[row, resource] -= amount
    hosts.vm_count[row] += sign
    hosts.headroom[row, resources + SLOTS] -= sign
    for part in range(2):  # cpu and memory; of a VM whose use is unknown, all that it asked for
        use = expected[part] if expected[part] >= 0 else demand[part]
        hosts.predicted[row, part] += sign * use
    if sign > 0:
        last = hosts.headroom[row, resources + ENDS]
        hosts.headroom[row, resources + ENDS] = max(last, expected[E_ENDS])
    if devices:
        for device in range(hosts.device_free.shape[1]):
            if devices >> device & 1:
                hosts.device_free[row, device] -= sign * milli
    if cells:
        count = 0
        for cell in range(hosts.cell_free.shape[1]):
            count += cells >> cell & 1
        seen = 0
        for cell in range(hosts.cell_free.shape[1]):
            if cells >> cell & 1:
                for part in range(2):
                    share = demand[part] // count
                    if seen < demand[part] % count:
                        share += 1
                    hosts.cell_free[row, cell, part] -= sign * share
                seen += 1
