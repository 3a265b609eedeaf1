"""Usable slots: the fixed-point formula behind the `fragmentation` strategy.

A host is worth what each request shape could still get out of it:

    value(host)          = sum over shapes t of weight[t] * slots(host, t)
    score(host, request) = value(host) - value(host after the request)      (lower is better)

`weight[t]` is the shape's size in the primary resource (GPU share on a GPU fleet, cores
elsewhere), so value is "primary resource still usable by t", summed over the shapes. All shapes
count alike: how often a shape arrives is deliberately ignored. A placement pays for the room it
takes *and* for the room it strands.

Slots are int64 in units of 1/SCALE, so every implementation gives the same answer.
"""

from collections.abc import Callable
from typing import TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])

SCALE = 1024

FLUID = 0
"""Whole slots of the primary resource, bounded by the others without rounding."""
WHOLE = 1
"""Whole slots of every resource, plus half the fourth power of the started slot."""


def kernel(function: Function) -> Function:
    """Compile a function, keeping its type for the checker; the flags live here only.

    Not cached on disk: Numba would not notice a change of this file in the kernels that call it.
    """
    compiled: Function = njit(function)
    return compiled


@kernel
def ratio(free: int, need: int) -> int:
    """Return free / need in 1/SCALE, rounded down; `need` must be positive."""
    return free * SCALE // need


@kernel
def whole(slots: int) -> int:
    """Drop the started slot."""
    return slots // SCALE * SCALE


@kernel
def near_miss(slots: int) -> int:
    """Return half the fourth power of the started slot: a host one core short is worth keeping."""
    part = slots % SCALE
    square = part * part // SCALE
    return square * square // (2 * SCALE)


@kernel
def cell_slots(cpu: int, memory: int, shape_cpu: int, shape_memory: int, rule: int) -> int:
    """Return the slots of a shape in one cell whose primary resource is `cpu`."""
    by_cpu = ratio(cpu, shape_cpu)
    by_memory = ratio(memory, shape_memory)
    if rule == FLUID:
        return min(whole(by_cpu), by_memory)
    both = min(by_cpu, by_memory)
    return whole(both) + near_miss(both)
