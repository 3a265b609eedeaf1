"""Scores that depend on the request in more than a constant, host by host.

`keys` has the scores that are the same for every request; here are the others, as far as amounts
alone decide them. What the mix of typical requests says is in `fragments`.
"""

from roost.fleet.assign import ONE_CELL
from roost.fleet.layout import CPU, DISK, MEMORY, HostArrays, Int64Array
from roost.placement.kernels.compiling import inlined
from roost.placement.kernels.fit import T_NUMA, Ask
from roost.placement.kernels.fixed_point import RATIO_BITS, RATIO_ONE, ratio
from roost.placement.kernels.keys import (
    KEY_KINDS,
    REFERENCE_CPU,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
    SCORE_ONE,
    host_key,
    imbalance,
)

#: Scores that need the request. Numbers below are the keys themselves: a scan by key is the
#: plain baseline that searches are measured against.
SCORE_BALANCE, SCORE_DOT, SCORE_FRAGMENTS, SCORE_DRAW = range(KEY_KINDS, KEY_KINDS + 4)


#: Fraction bits of a factor of a product, and the largest factor: products stay within 63 bits.
HALF_BITS = RATIO_BITS // 2
MOST_HALF = 1024 * RATIO_ONE >> HALF_BITS


@inlined
def half_bits(amount: int, reference: int) -> int:
    """Return a ratio in 15 fraction bits, at most 1,024."""
    return min(ratio(amount, reference) >> HALF_BITS, MOST_HALF)


@inlined
def alignment(free: Int64Array, demand: Int64Array) -> int:
    """Return the dot product of demand and free amounts, each over the reference host."""
    cpu = half_bits(demand[CPU], REFERENCE_CPU) * half_bits(free[CPU], REFERENCE_CPU)
    memory = half_bits(demand[MEMORY], REFERENCE_MEMORY) * half_bits(free[MEMORY], REFERENCE_MEMORY)
    disk = half_bits(demand[DISK], REFERENCE_DISK) * half_bits(free[DISK], REFERENCE_DISK)
    return 4 * cpu + 4 * memory + 2 * disk


@inlined
def amount_score(score: int, hosts: HostArrays, ask: Ask, row: int) -> int:
    """Return one host's score for one request, by a key or by what amounts say."""
    if score == SCORE_BALANCE:
        uneven = imbalance(hosts, row) if ask.terms[T_NUMA] == ONE_CELL else 0
        return SCORE_ONE - uneven
    if score == SCORE_DOT:
        return -alignment(hosts.headroom[row], ask.demand)
    return host_key(score, hosts, row)
