"""The mix of typical requests that the `fragmentation` strategy keeps room for."""

from dataclasses import dataclass

import numpy as np

from roost.fleet.description import model_mask
from roost.fleet.fleet import Fleet
from roost.model.resources import DeviceDemand
from roost.placement.kernels.fragments import MIX_ONE, MixArrays

#: A mix covers this share of the VMs it is taken from, with at most so many kinds.
_COVERED = 0.95
_MOST_KINDS = 128


@dataclass(frozen=True, slots=True)
class TypicalRequest:
    """One kind of request and how often it comes."""

    cpu_milli: int
    memory_bytes: int
    devices: DeviceDemand | None
    count: int


@dataclass(frozen=True, slots=True)
class Mix:
    """Kinds of requests with their counts, the most frequent first."""

    kinds: tuple[TypicalRequest, ...]

    def arrays(self, fleet: Fleet) -> MixArrays:
        """Return the mix in the fleet's numbers, weights adding up to MIX_ONE at most."""
        total = sum(kind.count for kind in self.kinds)
        need = np.zeros((len(self.kinds), 6), np.int64)
        for row, kind in zip(need, self.kinds, strict=True):
            row[0], row[1] = kind.cpu_milli, kind.memory_bytes
            if kind.devices is not None:
                row[2], row[3] = kind.devices.count, kind.devices.milli
                row[4] = model_mask(fleet, kind.devices.models)
            row[5] = kind.count * MIX_ONE // total
        return MixArrays(need)


def mix_of(fleet: Fleet) -> Mix:
    """Return the mix of the VMs the fleet runs, by falling count until 95% are covered."""
    vms = fleet.vms
    alive = np.flatnonzero(vms.host[: vms.count] >= 0)
    columns = np.column_stack([vms.demand[alive, 0], vms.demand[alive, 1], vms.terms[alive]])
    distinct, counts = np.unique(columns, axis=0, return_counts=True)
    merged: dict[tuple[int, int, DeviceDemand | None], int] = {}
    for (cpu, memory, terms), count in zip(distinct.tolist(), counts.tolist(), strict=True):
        key = (cpu, memory, fleet.terms[terms].devices)
        merged[key] = merged.get(key, 0) + count
    kinds = [TypicalRequest(*key, count) for key, count in merged.items()]
    kinds.sort(key=lambda kind: (-kind.count, kind.cpu_milli, kind.memory_bytes))
    covered, wanted = 0, _COVERED * len(alive)
    picked = []
    for kind in kinds[:_MOST_KINDS]:
        if covered >= wanted:
            break
        picked.append(kind)
        covered += kind.count
    return Mix(tuple(picked))
