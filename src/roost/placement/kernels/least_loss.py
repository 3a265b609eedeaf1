"""The host that loses least worth to a request, without weighing every host to the end.

Taking a VM costs a host something of each kind of the mix and never gives it any, so the sum only
grows: once it is above that of the best host so far, the other kinds need not be looked at. What
those lose at least is known beforehand (`floors`), so that this is soon. The heaviest kinds come
first, because hosts differ most in them.

What a host loses to a request stays the same until the host or the mix changes, so it is kept for
the requests asked last (`kept`): the next of the kind weighs only the hosts that changed since.
"""

from roost.fleet.assign import ANY, LOWEST, ONE_CELL
from roost.fleet.groups import GroupArrays
from roost.fleet.layout import CPU, MEMORY, MOST_RATIO_CPU, HostArrays, Int64Array
from roost.placement.kernels.compiling import inlined, int64, kernel
from roost.placement.kernels.fit import (
    A_CHARGED,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_DEVICE_MEMORY,
    T_DEVICES,
    T_MILLI,
    T_MODELS,
    T_NUMA,
    Ask,
    in_sorted,
    row_cells,
    row_devices,
    row_fits,
    row_penalty,
)
from roost.placement.kernels.fragments import (
    ASKED_COLUMNS,
    ASKED_CPU,
    ASKED_DEVICE_MEMORY,
    ASKED_DEVICES,
    ASKED_MEMORY,
    ASKED_MILLI,
    ASKED_MODELS,
    ASKED_NUMA,
    MIX_COUNT,
    MIX_CPU,
    MIX_MEMORY,
    MIX_NUMA,
    MIX_WEIGHT,
    NEVER_SEEN,
    MixArrays,
    Taken,
    amount_slots,
    can_share,
    primary_left,
    shares_device,
    slots_left,
)
from roost.placement.kernels.ranking import (
    ABSENT,
    CLASSES,
    M_LENGTHS,
    P_BLOCK,
    P_CLASS,
    P_STAMP,
    Ranking,
)
from roost.placement.kernels.search import MOST, NOWHERE, run_covers

#: More than any host can lose.
MOST_LOST = 2**62

#: Kinds that are weighed before the sum is compared.
TOGETHER = 4

#: Columns of `MixArrays.kept`: a loss is kept twice as large, plus 1 if it is only known to be
#: no smaller. Larger losses are not kept.
K_STAMP, K_LOST = range(2)
MOST_KEPT = 2**61


@kernel
def write_floors(ask: Ask, mix: MixArrays) -> bool:
    """Write what the request takes from any host that fits, from each kind on to the last.

    Returns whether amounts alone decide: no kind that counts asks for devices or cells.

    A kind is limited by cpu or by memory, so it loses at least the smaller of what it loses by
    either; and floor(a) - floor(a - b) is at least floor(b).
    """
    cpu, memory = min(ask.demand[CPU], MOST_RATIO_CPU), ask.demand[MEMORY]
    by_amounts = True
    mix.floors[len(mix.kinds)] = 0
    for number in range(len(mix.kinds) - 1, -1, -1):
        kind = mix.kinds[number]
        mix.floors[number] = mix.floors[number + 1]
        if kind[MIX_WEIGHT] == 0:
            continue
        if kind[MIX_COUNT] > 0 or kind[MIX_NUMA] != ANY:
            by_amounts = False
        elif kind[MIX_CPU] > 0 and kind[MIX_MEMORY] > 0:
            mix.floors[number] += kind[MIX_WEIGHT] * amount_slots(kind, cpu, memory)
    return by_amounts


@inlined
def lost_of_amounts(hosts: HostArrays, ask: Ask, mix: MixArrays, row: int, limit: int) -> int:
    """Do as `least_lost` does where amounts alone decide."""
    cpu, memory = min(hosts.headroom[row, CPU], MOST_RATIO_CPU), hosts.headroom[row, MEMORY]
    cpu_after, memory_after = cpu - ask.demand[CPU], memory - ask.demand[MEMORY]
    lost, start = int64(0), int64(0)
    while start < len(mix.kinds):
        # Some at a time: their divisions overlap, which is worth more than stopping at once.
        end = min(start + TOGETHER, len(mix.kinds))
        for number in range(start, end):
            kind = mix.kinds[number]
            slots = amount_slots(kind, cpu, memory) - amount_slots(kind, cpu_after, memory_after)
            lost += kind[MIX_WEIGHT] * slots
        if lost + mix.floors[end] > limit:
            return lost + mix.floors[end]
        start = end
    return lost


@kernel
def lost_by(hosts: HostArrays, row: int, mix: MixArrays, taken: Taken, limit: int) -> int:
    """Return the worth that a host would lose; above the limit any number above it."""
    nothing = Taken(0, 0, 0, 0, 0, 0)
    lost = 0
    for number in range(len(mix.kinds)):
        kind = mix.kinds[number]
        if kind[MIX_WEIGHT] > 0:
            before = slots_left(hosts, row, kind, nothing)
            lost += kind[MIX_WEIGHT] * (before - slots_left(hosts, row, kind, taken))
            if lost + mix.floors[number + 1] > limit:
                return lost + mix.floors[number + 1]
    return lost


@kernel
def least_lost(hosts: HostArrays, ask: Ask, mix: MixArrays, row: int, limit: int) -> int:
    """Return the worth that taking the VM costs a host; above the limit any number above it.

    The floors must have been written for the request. The choices are those of `thriftiest`.
    """
    terms = ask.terms
    one_cell = terms[T_NUMA] == ONE_CELL
    if one_cell and shares_device(terms):
        limit = MOST_LOST  # the cell is chosen beside the best device, which must be known then
    cpu, memory, milli = ask.demand[CPU], ask.demand[MEMORY], terms[T_MILLI]
    devices = row_devices(hosts, ask, row)
    cells = row_cells(hosts, ask, row, int64(LOWEST))
    halves = 0 if one_cell or cells == 0 else 1
    lost = lost_by(hosts, row, mix, Taken(cpu, memory, milli, devices, cells, halves), limit)
    if shares_device(terms):
        for device in range(hosts.device_free.shape[1]):
            if can_share(hosts, row, device, terms):
                mask = int64(1) << device
                taken = Taken(cpu, memory, milli, mask, cells, halves)
                other = lost_by(hosts, row, mix, taken, limit)
                if other < lost:
                    lost, devices = other, mask
    if one_cell:
        for cell in range(hosts.cell_free.shape[1]):
            if hosts.cell_free[row, cell, 0] >= cpu and hosts.cell_free[row, cell, 1] >= memory:
                taken = Taken(cpu, memory, milli, devices, int64(1) << cell, 0)
                lost = min(lost, lost_by(hosts, row, mix, taken, limit))
    return lost


@inlined
def asks_as(asked: Int64Array, slot: int, ask: Ask) -> bool:
    """Say whether the losses in a slot are those of requests like this one."""
    terms = ask.terms
    return (
        asked[slot, ASKED_CPU] == ask.demand[CPU]
        and asked[slot, ASKED_MEMORY] == ask.demand[MEMORY]
        and asked[slot, ASKED_DEVICES] == terms[T_DEVICES]
        and asked[slot, ASKED_MILLI] == terms[T_MILLI]
        and asked[slot, ASKED_DEVICE_MEMORY] == terms[T_DEVICE_MEMORY]
        and asked[slot, ASKED_MODELS] == terms[T_MODELS]
        and asked[slot, ASKED_NUMA] == terms[T_NUMA]
    )


@kernel
def slot_for(ask: Ask, mix: MixArrays) -> int:
    """Return the slot that keeps what requests like this one lose; a new one takes the oldest."""
    for slot in range(len(mix.asked)):
        if asks_as(mix.asked, slot, ask):
            return slot
    slot = mix.turn[0]
    mix.turn[0] = (slot + 1) % len(mix.asked)
    terms, asked = ask.terms, mix.asked[slot]
    asked[ASKED_CPU], asked[ASKED_MEMORY] = ask.demand[CPU], ask.demand[MEMORY]
    asked[ASKED_DEVICES], asked[ASKED_MILLI] = terms[T_DEVICES], terms[T_MILLI]
    asked[ASKED_DEVICE_MEMORY], asked[ASKED_MODELS] = terms[T_DEVICE_MEMORY], terms[T_MODELS]
    asked[ASKED_NUMA] = terms[T_NUMA]
    assert ASKED_COLUMNS == len(asked)
    mix.kept[slot, :, K_STAMP] = NEVER_SEEN
    return slot


@kernel
def search_least_lost(
    hosts: HostArrays,
    marks: Int64Array,
    groups: GroupArrays,
    ranking: Ranking,
    ask: Ask,
    mix: MixArrays,
) -> tuple[int, int]:
    """Return the fitting host with the least (worth lost + penalty, primary left, host number).

    In host-number order: hosts are many and each costs little, so fetching them from memory is
    what takes time (block by block it took twice as long on 100,000 hosts). Hosts of classes
    without enough headroom are passed over by a look at the ranking.
    """
    marks_at = hosts.headroom.shape[1]
    charged, listed = ask.counts[A_CHARGED], ask.terms[T_CANDIDATE_COUNT]
    best_row, best, best_left = int64(NOWHERE), int64(MOST), int64(MOST)
    roomy = 0
    for which in range(CLASSES):
        if ranking.meta[M_LENGTHS + which] > 0 and run_covers(ranking, which, 0, ask, marks_at):
            roomy |= 1 << which
    if roomy == 0:
        return best_row, best
    by_amounts = write_floors(ask, mix)
    slot = slot_for(ask, mix) if len(mix.asked) > 0 else int64(NOWHERE)
    for row in range(len(ranking.place)):
        if not roomy >> ranking.place[row, P_CLASS] & 1 or ranking.place[row, P_BLOCK] == ABSENT:
            continue
        kept = int64(NEVER_SEEN)
        if slot != NOWHERE and mix.kept[slot, row, K_STAMP] == ranking.place[row, P_STAMP]:
            kept = mix.kept[slot, row, K_LOST]
            if (kept >> 1) * mix.unit[0] > best:
                continue
        if not row_fits(hosts, marks, groups, ask, row):
            continue
        if listed >= 0 and not in_sorted(ask.lists, ask.terms[T_CANDIDATES], listed, row):
            continue
        penalty = int64(0)
        if charged:
            penalty = row_penalty(hosts, marks, groups, ask, row)
        left = primary_left(hosts, mix, row)
        # Who would lose a tie must lose less worth; of equals, the lower number came before.
        limit = (best - penalty - (left >= best_left)) // mix.unit[0]
        if kept != NEVER_SEEN and (kept & 1 == 0 or kept >> 1 > limit):
            lost = kept >> 1
        else:
            if by_amounts:
                lost = lost_of_amounts(hosts, ask, mix, row, limit)
            else:
                lost = least_lost(hosts, ask, mix, row, limit)
            if slot != NOWHERE and lost < MOST_KEPT:
                mix.kept[slot, row, K_STAMP] = ranking.place[row, P_STAMP]
                mix.kept[slot, row, K_LOST] = 2 * lost + (1 if lost > limit else 0)
        if lost <= limit:
            best = lost * mix.unit[0] + penalty
            best_row, best_left = row, left
    return best_row, best
