"""Scores that depend on the request in more than a constant, host by host.

`keys` has the scores that are the same for every request; here are the others, as far as amounts
alone decide them. What the mix of typical requests says is in `fragments`.
"""

from roost.fleet.assign import ONE_CELL
from roost.fleet.layout import CPU, DEVICE_TOTAL, DISK, ENDS, MEMORY, HostArrays, Int64Array
from roost.placement.kernels.compiling import inlined, int64
from roost.placement.kernels.fit import A_ENDS, T_NUMA, Ask, asked_devices
from roost.placement.kernels.fixed_point import RATIO_BITS, RATIO_ONE, ratio
from roost.placement.kernels.keys import (
    DEVICES_WEIGHT,
    KEY_FREE,
    KEY_KINDS,
    REFERENCE_CPU,
    REFERENCE_DEVICES,
    REFERENCE_DISK,
    REFERENCE_MEMORY,
    SCORE_ONE,
    host_key,
    imbalance,
    request_key,
)

#: Scores that need the request. Numbers below are the keys themselves: a scan by key is the
#: plain baseline that searches are measured against.
SCORE_BALANCE, SCORE_DOT, SCORE_FRAGMENTS, SCORE_DRAW, SCORE_LIFETIME = range(
    KEY_KINDS, KEY_KINDS + 5
)

#: By how many seconds a VM may outlast all others on its host in each tier of `lifetime_aware`:
#: coarse, and four times as much each, because ends are guesses and long lives are guessed worst.
#: In the last but one any host that has a VM, in the last every host.
TIER_SLACKS = (0, 3_600, 14_400, 57_600, 230_400, 921_600, 2**59, 2**61)
TIERS = len(TIER_SLACKS)
#: What each tier costs: more than the free amounts of a host as large as four reference hosts.
TIER_COST = 4 * SCORE_ONE


#: Fraction bits of a factor of a product, and the largest factor: products stay within 63 bits.
HALF_BITS = RATIO_BITS // 2
MOST_HALF = 1024 * RATIO_ONE >> HALF_BITS


@inlined
def half_bits(amount: int, reference: int) -> int:
    """Return a ratio in 15 fraction bits, at most 1,024."""
    return min(ratio(amount, reference) >> HALF_BITS, MOST_HALF)


@inlined
def alignment(free: Int64Array, demand: Int64Array, devices: int) -> int:
    """Return the dot product of demand and free amounts, each over the reference host.

    `free` is a host's headroom, and `devices` the thousandths of devices that are asked for.
    """
    cpu = half_bits(demand[CPU], REFERENCE_CPU) * half_bits(free[CPU], REFERENCE_CPU)
    memory = half_bits(demand[MEMORY], REFERENCE_MEMORY) * half_bits(free[MEMORY], REFERENCE_MEMORY)
    disk = half_bits(demand[DISK], REFERENCE_DISK) * half_bits(free[DISK], REFERENCE_DISK)
    amounts = 4 * cpu + 4 * memory + 2 * disk
    if devices == 0:
        return amounts
    left = half_bits(free[len(demand) + DEVICE_TOTAL], REFERENCE_DEVICES)
    return amounts + DEVICES_WEIGHT * half_bits(devices, REFERENCE_DEVICES) * left


@inlined
def tier_of(last_end: int, vm_end: int) -> int:
    """Return the tier of a host whose last VM ends then, for a VM that ends at another time."""
    tier = 0
    while tier < TIERS - 1 and last_end < vm_end - TIER_SLACKS[tier]:
        tier += 1
    return tier


@inlined
def own_key(score: int, ask: Ask) -> int:
    """Return what a request takes off the score of any host that takes it."""
    kind = int64(KEY_FREE) if score == SCORE_LIFETIME else score
    demand = ask.demand
    return request_key(kind, demand[CPU], demand[MEMORY], demand[DISK], asked_devices(ask))


@inlined
def amount_score(score: int, hosts: HostArrays, ask: Ask, row: int) -> int:
    """Return one host's score for one request, by a key or by what amounts say."""
    if score == SCORE_BALANCE:
        uneven = imbalance(hosts, row) if ask.terms[T_NUMA] == ONE_CELL else 0
        return SCORE_ONE - uneven
    if score == SCORE_DOT:
        return -alignment(hosts.headroom[row], ask.demand, asked_devices(ask))
    if score == SCORE_LIFETIME:
        last_end = hosts.headroom[row, len(ask.demand) + ENDS]
        tier = tier_of(last_end, ask.counts[A_ENDS])
        return tier * TIER_COST + host_key(int64(KEY_FREE), hosts, row)
    return host_key(score, hosts, row)
