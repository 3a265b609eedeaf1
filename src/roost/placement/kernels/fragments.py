"""Fragmentation: how much of what is free on a host the typical requests cannot use.

For a mix of typical requests, a host's fragments are the device thousandths that are free on it
but of no use to a request drawn from the mix. Placing a VM changes them; the strategy takes the
host where they grow least (or shrink most).
"""

from typing import NamedTuple

from roost.fleet.layout import CPU, MEMORY, HostArrays, Int64Array
from roost.model.resources import WHOLE_DEVICE
from roost.placement.kernels.compiling import kernel
from roost.placement.kernels.fit import T_MILLI, Ask, row_devices
from roost.placement.kernels.keys import SCORE_ONE

#: Columns of `MixArrays.need`.
MIX_CPU, MIX_MEMORY, MIX_COUNT, MIX_MILLI, MIX_MODELS, MIX_WEIGHT = range(6)

#: The weights of a mix add up to this.
MIX_ONE = 2**20

#: One device thousandth of fragments with the weight 1, in score; one device is about one score.
_PER_THOUSANDTH = SCORE_ONE // MIX_ONE // WHOLE_DEVICE


class MixArrays(NamedTuple):
    """Typical requests: int64 [types, 6] of cpu, memory, devices, milli, models, weight."""

    need: Int64Array


@kernel
def fragments(
    hosts: HostArrays, row: int, mix: MixArrays, cpu: int, memory: int, devices: int, milli: int
) -> int:
    """Return the weighted unusable device thousandths of a host.

    The host is taken as if `cpu`, `memory` and `milli` of each of the `devices` were gone.
    """
    width = hosts.device_free.shape[1]
    left_cpu = hosts.headroom[row, CPU] - cpu
    left_memory = hosts.headroom[row, MEMORY] - memory
    total = 0
    for kind in range(len(mix.need)):
        need = mix.need[kind]
        idle = 0
        useless = 0
        usable = 0
        for device in range(width):
            free = hosts.device_free[row, device]
            if free < 0:
                continue
            if devices >> device & 1:
                free -= milli
            idle += free
            allowed = need[MIX_MODELS] == 0 or (
                need[MIX_MODELS] >> hosts.device_info[row, device, 0] & 1
            )
            if need[MIX_COUNT] > 0 and allowed and free >= need[MIX_MILLI]:
                usable += 1
            else:
                useless += free
        hosted = (
            need[MIX_COUNT] > 0
            and usable >= need[MIX_COUNT]
            and left_cpu >= need[MIX_CPU]
            and left_memory >= need[MIX_MEMORY]
        )
        total += need[MIX_WEIGHT] * (useless if hosted else idle)
    return total


@kernel
def fragment_change(hosts: HostArrays, ask: Ask, mix: MixArrays, row: int) -> int:
    """Return how the host's fragments change when it takes the VM, in score.

    A whole device (1000 thousandths) of fragments is one whole score.
    """
    devices = row_devices(hosts, ask, row)
    before = fragments(hosts, row, mix, 0, 0, 0, 0)
    after = fragments(
        hosts, row, mix, ask.demand[CPU], ask.demand[MEMORY], devices, ask.terms[T_MILLI]
    )
    return (after - before) * _PER_THOUSANDTH
