"""The mix of typical requests that the `fragmentation` strategy keeps room for."""

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

from roost.fleet.description import NUMA_NUMBERS, model_mask
from roost.fleet.fleet import Fleet
from roost.fleet.layout import Int64Array
from roost.model.resources import WHOLE_DEVICE, DeviceDemand, NumaMode
from roost.placement.kernels.fragments import (
    ASKED_COLUMNS,
    MIX_COLUMNS,
    MIX_COUNT,
    MIX_CPU,
    MIX_MEMORY,
    MIX_MILLI,
    MIX_MODELS,
    MIX_NUMA,
    MIX_WEIGHT,
    NEVER_SEEN,
    NOBODY,
    SLOT,
    MixArrays,
)
from roost.placement.kernels.keys import REFERENCE_CPU, SCORE_ONE

#: A mix covers this share of the VMs it is taken from, with at most so many kinds.
_COVERED = 0.95
MOST_KINDS = 128

#: Losses that are kept, counted by request and host: 16 bytes each.
_MOST_KEPT = 2_000_000
_MOST_SLOTS, _LEAST_SLOTS = 256, 8


@dataclass(frozen=True, slots=True)
class TypicalRequest:
    """One kind of request that the fleet should keep room for."""

    cpu_milli: int
    memory_bytes: int
    devices: DeviceDemand | None = None
    numa: NumaMode = NumaMode.ANY


@dataclass(frozen=True, slots=True)
class Mix:
    """The kinds of requests that typically come."""

    kinds: tuple[TypicalRequest, ...]

    @property
    def digest(self) -> str:
        """Return what names the mix: the same for the same kinds, in whatever order."""
        kinds = sorted(repr(kind) for kind in self.kinds)
        return hashlib.blake2b("\n".join(kinds).encode(), digest_size=8).hexdigest()

    def arrays(self, fleet: Fleet, hosts: int = 0) -> MixArrays:
        """Return the mix in the fleet's numbers, with room to keep what so many hosts lose.

        A kind weighs as much as it takes of the primary resource; in a mix with devices, kinds
        without weigh nothing. One whole score is one device, or the cpu of the reference host,
        lost to every kind.
        """
        with_devices = any(kind.devices for kind in self.kinds)
        rows = np.zeros((len(self.kinds), MIX_COLUMNS), np.int64)
        for row, kind in zip(rows, self.kinds, strict=True):
            row[MIX_CPU], row[MIX_MEMORY] = kind.cpu_milli, kind.memory_bytes
            row[MIX_NUMA] = NUMA_NUMBERS[kind.numa]
            if kind.devices is not None:
                row[MIX_COUNT], row[MIX_MILLI] = kind.devices.count, kind.devices.milli
                row[MIX_MODELS] = model_mask(fleet, kind.devices.models)
                row[MIX_WEIGHT] = kind.devices.count * kind.devices.milli
            elif not with_devices:
                row[MIX_WEIGHT] = kind.cpu_milli
        whole = WHOLE_DEVICE if with_devices else REFERENCE_CPU
        unit = max(1, SCORE_ONE // (SLOT * whole * max(1, len(rows))))
        largest_first = np.argsort(-rows[:, MIX_WEIGHT], kind="stable")
        return mix_arrays(rows[largest_first], unit, hosts)


def mix_arrays(kinds: Int64Array, unit: int, hosts: int = 0) -> MixArrays:
    """Return the arrays of a mix with these rows, with room to keep what so many hosts lose."""
    slots = max(_LEAST_SLOTS, min(_MOST_SLOTS, _MOST_KEPT // hosts)) if hosts else 0
    return MixArrays(
        kinds,
        np.array([unit], np.int64),
        np.zeros(len(kinds) + 1, np.int64),
        np.full((slots, ASKED_COLUMNS), NOBODY, np.int64),
        np.full((slots, hosts, 2), NEVER_SEEN, np.int64),
        np.zeros(1, np.int64),
    )


NO_MIX = mix_arrays(np.zeros((0, MIX_COLUMNS), np.int64), 1)


def kinds_in(fleet: Fleet) -> Counter[TypicalRequest]:
    """Return how many VMs of each kind the fleet runs."""
    vms = fleet.vms
    alive = np.flatnonzero(vms.host[: vms.count] >= 0)
    columns = np.column_stack([vms.demand[alive, 0], vms.demand[alive, 1], vms.terms[alive]])
    distinct, counts = np.unique(columns, axis=0, return_counts=True)
    seen: Counter[TypicalRequest] = Counter()
    for (cpu, memory, number), count in zip(distinct.tolist(), counts.tolist(), strict=True):
        terms = fleet.terms[number]
        seen[TypicalRequest(cpu, memory, terms.devices, terms.numa)] += count
    return seen


def mix_of(fleet: Fleet) -> Mix:
    """Return the mix of the VMs the fleet runs, by falling count until 95% are covered."""
    seen = kinds_in(fleet)
    kinds = sorted(seen, key=lambda kind: (-seen[kind], kind.cpu_milli, kind.memory_bytes))
    covered, wanted = 0, _COVERED * seen.total()
    picked = []
    for kind in kinds[:MOST_KINDS]:
        if covered >= wanted:
            break
        picked.append(kind)
        covered += seen[kind]
    return Mix(tuple(picked))
