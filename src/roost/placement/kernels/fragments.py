"""Fragmentation: what a placement takes away from the requests that typically come.

A host is worth, for each typical request t, the amount of the primary resource that requests like
t could still get out of it: weight(t) x slots(host, t), in 1/1024 of a slot. A placement costs
the worth it takes and the worth it strands; the strategy takes the host where that is least. The
primary resource is the device share if the mix asks for devices at all, else cpu.

    device mix   slots = min(whole slots by devices, cpu left / cpu(t), memory left / memory(t))
    cpu mix      slots = min(whole slots by cpu, memory left / memory(t)), per NUMA cell if t asks

How often a request comes does not count: rare large requests are the ones that need protection.
"""

from typing import NamedTuple

from roost.fleet.assign import ANY, LOWEST, ONE_CELL
from roost.fleet.layout import CPU, MEMORY, MOST_RATIO_CPU, HostArrays, Int64Array
from roost.model.resources import WHOLE_DEVICE
from roost.placement.kernels.compiling import inlined, int64, kernel
from roost.placement.kernels.fit import (
    T_DEVICE_MEMORY,
    T_DEVICES,
    T_MILLI,
    T_MODELS,
    T_NUMA,
    Ask,
    row_cells,
    row_devices,
)

#: Columns of `MixArrays.kinds`.
MIX_CPU, MIX_MEMORY, MIX_COUNT, MIX_MILLI, MIX_MODELS, MIX_NUMA, MIX_WEIGHT, MIX_COLUMNS = range(8)

#: Fractions of a slot.
SLOT = 1024

#: Columns of `MixArrays.asked`: all that a host's loss depends on besides the host and the mix.
(
    ASKED_CPU,
    ASKED_MEMORY,
    ASKED_DEVICES,
    ASKED_MILLI,
    ASKED_DEVICE_MEMORY,
    ASKED_MODELS,
    ASKED_NUMA,
    ASKED_COLUMNS,
) = range(8)

#: A slot that nobody has asked yet, and a host that nothing is kept of.
NOBODY, NEVER_SEEN = -1, -1


class MixArrays(NamedTuple):
    """Typical requests, all int64.

    | field | shape | meaning |
    |---|---|---|
    | kinds | [kinds, MIX_COLUMNS] | the heaviest first, so those with devices before the others |
    | unit | [1] | the score of one unit of worth |
    | floors | [kinds + 1] | working array: what a request takes at least from this kind on |
    | asked | [slots, ASKED_COLUMNS] | requests whose losses are kept, by what they ask |
    | kept | [slots, hosts, 2] | for each of them and host: its stamp then, and what it loses |
    | turn | [1] | the slot that is given away next |
    """

    kinds: Int64Array
    unit: Int64Array
    floors: Int64Array
    asked: Int64Array
    kept: Int64Array
    turn: Int64Array


class Taken(NamedTuple):
    """What a host is imagined to have given away already."""

    cpu: int
    memory: int
    milli: int
    devices: int  # bit mask
    cells: int  # bit mask
    halves: int  # 1 if the cells share the amounts


@inlined
def slots_by(free: int, need: int) -> int:
    """Return free / need in 1/1024; a request that needs nothing is not limited."""
    if need <= 0:
        return MOST_RATIO_CPU
    return max(0, free) * SLOT // need


@kernel
def device_slots(hosts: HostArrays, row: int, kind: Int64Array, taken: Taken) -> int:
    """Return whole slots by devices: shares on each device, taken together by the count."""
    shares = 0
    for device in range(hosts.device_free.shape[1]):
        free = hosts.device_free[row, device]
        if free <= 0:
            continue
        if kind[MIX_MODELS] and not kind[MIX_MODELS] >> hosts.device_info[row, device, 0] & 1:
            continue
        if taken.devices >> device & 1:
            free -= taken.milli
        shares += free // kind[MIX_MILLI]
    return shares // kind[MIX_COUNT]


@kernel
def cell_slots(hosts: HostArrays, row: int, kind: Int64Array, taken: Taken) -> int:
    """Return the slots of a request that asks for NUMA cells, by cpu and memory."""
    single = kind[MIX_NUMA] == ONE_CELL
    need_cpu = kind[MIX_CPU] if single else kind[MIX_CPU] // 2
    need_memory = kind[MIX_MEMORY] if single else kind[MIX_MEMORY] // 2
    total = 0
    least_cpu, least_memory = int64(2**62), int64(2**62)
    for cell in range(hosts.cell_free.shape[1]):
        cpu, memory = hosts.cell_free[row, cell, 0], hosts.cell_free[row, cell, 1]
        if cpu < 0:
            continue
        if taken.cells >> cell & 1:
            cpu -= taken.cpu >> taken.halves
            memory -= taken.memory >> taken.halves
        if single:
            whole = slots_by(cpu, need_cpu) // SLOT * SLOT
            total += min(whole, slots_by(memory, need_memory))
        least_cpu = min(least_cpu, cpu)
        least_memory = min(least_memory, memory)
    if single or least_cpu == 2**62:
        return total
    whole = slots_by(least_cpu, need_cpu) // SLOT * SLOT
    return min(whole, slots_by(least_memory, need_memory))


@inlined
def amount_slots(kind: Int64Array, cpu: int, memory: int) -> int:
    """Return the slots for a kind that asks for amounts alone."""
    whole = slots_by(cpu, kind[MIX_CPU]) // SLOT * SLOT
    return min(whole, slots_by(memory, kind[MIX_MEMORY]))


@inlined
def slots_left(hosts: HostArrays, row: int, kind: Int64Array, taken: Taken) -> int:
    """Return the slots that a host has for one kind of typical request."""
    if kind[MIX_COUNT] == 0 and kind[MIX_NUMA] != ANY:
        return cell_slots(hosts, row, kind, taken)
    cpu = min(hosts.headroom[row, CPU], MOST_RATIO_CPU) - taken.cpu
    memory = hosts.headroom[row, MEMORY] - taken.memory
    if kind[MIX_COUNT] == 0:
        return amount_slots(kind, cpu, memory)
    slots = device_slots(hosts, row, kind, taken) * SLOT
    if slots > 0:
        slots = min(slots, slots_by(cpu, kind[MIX_CPU]))
        slots = min(slots, slots_by(memory, kind[MIX_MEMORY]))
    return slots


@kernel
def worth(hosts: HostArrays, row: int, mix: MixArrays, taken: Taken) -> int:
    """Return what the typical requests could still get out of a host."""
    total = 0
    for number in range(len(mix.kinds)):
        kind = mix.kinds[number]
        if kind[MIX_WEIGHT] > 0:
            total += kind[MIX_WEIGHT] * slots_left(hosts, row, kind, taken)
    return total


@inlined
def shares_device(terms: Int64Array) -> bool:
    """Say whether a request asks for a share of one device."""
    return terms[T_DEVICES] == 1 and terms[T_MILLI] < WHOLE_DEVICE


@inlined
def can_share(hosts: HostArrays, row: int, device: int, terms: Int64Array) -> bool:
    """Say whether a device has the share that a request asks for."""
    model, memory, shareable = hosts.device_info[row, device]
    if memory < terms[T_DEVICE_MEMORY] or shareable == 0:
        return False
    if terms[T_MODELS] and not terms[T_MODELS] >> model & 1:
        return False
    return hosts.device_free[row, device] >= terms[T_MILLI]


@kernel
def thriftiest(hosts: HostArrays, ask: Ask, mix: MixArrays, row: int) -> tuple[int, int, int]:
    """Return the devices and cells that leave a host worth most, and that worth.

    Only a share of one device, or one cell, leaves a choice that matters.
    """
    terms = ask.terms
    cpu, memory = ask.demand[CPU], ask.demand[MEMORY]
    devices = row_devices(hosts, ask, row)
    cells = row_cells(hosts, ask, row, int64(LOWEST))
    halves = 0 if terms[T_NUMA] == ONE_CELL or cells == 0 else 1
    best = worth(hosts, row, mix, Taken(cpu, memory, terms[T_MILLI], devices, cells, halves))
    if shares_device(terms):
        for device in range(hosts.device_free.shape[1]):
            if not can_share(hosts, row, device, terms):
                continue
            mask = int64(1) << device
            left = worth(hosts, row, mix, Taken(cpu, memory, terms[T_MILLI], mask, cells, halves))
            # The tightest device came first, and the lowest of those that are equally tight.
            if left > best:
                best, devices = left, mask
    if terms[T_NUMA] == ONE_CELL:
        for cell in range(hosts.cell_free.shape[1]):
            if hosts.cell_free[row, cell, 0] < cpu or hosts.cell_free[row, cell, 1] < memory:
                continue
            mask = int64(1) << cell
            left = worth(hosts, row, mix, Taken(cpu, memory, terms[T_MILLI], devices, mask, 0))
            if left > best:
                best, cells = left, mask
    return devices, cells, best


@kernel
def worth_lost(hosts: HostArrays, ask: Ask, mix: MixArrays, row: int) -> int:
    """Return the worth that taking the VM costs a host, in score."""
    _, _, left = thriftiest(hosts, ask, mix, row)
    before = worth(hosts, row, mix, Taken(0, 0, 0, 0, 0, 0))
    return (before - left) * mix.unit[0]


@inlined
def by_cpu(mix: MixArrays) -> bool:
    """Say whether cpu is the primary resource; kinds with devices would come first."""
    return len(mix.kinds) == 0 or mix.kinds[0, MIX_COUNT] == 0


@inlined
def primary_left(hosts: HostArrays, mix: MixArrays, row: int) -> int:
    """Return what a host has left of the primary resource; among equals, less is better."""
    if by_cpu(mix):
        return hosts.headroom[row, CPU]
    total = 0
    for device in range(hosts.device_free.shape[1]):
        total += max(0, hosts.device_free[row, device])
    return total
