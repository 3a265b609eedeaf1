"""Ruin and recreate: some VMs of a few hosts taken out and put back one by one where it is best.

A tight fleet refuses nearly every single move and exchange; taking several VMs of the same hosts
out at once makes the room in which they can be arranged anew. A round that ends worse than the
temperature allows, or that finds no place for a VM, is taken back.
"""

from typing import NamedTuple

from roost.fleet.layout import BoolArray, Int32Array, Int64Array
from roost.placement.kernels.compiling import int64
from roost.planner.kernels.amounts import beside_slots, over, uneven
from roost.planner.kernels.compiling import entry_point, inlined, kernel
from roost.planner.kernels.moving import link, note_away, unlink
from roost.planner.kernels.random import draw
from roost.planner.kernels.rules import in_domain
from roost.planner.kernels.tables import COST, FORBIDDEN, MADE, MOST_AWAY, Facts, Floats, State
from roost.planner.problem import APART, WIDE

_RULE, _LEVEL, _BOUND = 0, 1, 2
#: Hosts that are asked for each VM that is put back; of more, as many at random.
ASKED = 256


class Hand(NamedTuple):
    """VMs that are taken out: who, from where, and how many by group.

    | field | dtype, shape | meaning |
    |---|---|---|
    | vm, source | int32 [most] | who, and its host before |
    | taken | int64 [groups + 1] | members of each group that are taken out |
    | liftable | bool [vms] | whose rules a round keeps: apart, wide and counted ones |
    | size | int64 [vms] | the larger are put back first |
    """

    vm: Int32Array
    source: Int32Array
    taken: Int64Array
    liftable: BoolArray
    size: Int64Array


@inlined
def host_delta(facts: Facts, state: State, host: int, vm: int, sign: int) -> int:
    """Return by how much a host's cost changes when a VM comes (sign 1) or leaves (-1)."""
    delta = 0
    for resource in range(facts.capacity.shape[1]):
        amount = sign * facts.demand[vm, resource]
        if amount == 0:
            continue
        used = state.used[host, resource]
        weight = facts.load_weight[resource]
        if weight != 0:
            above = used - facts.safety[host, resource]
            delta += weight * (over(above + amount) - over(above))
        if facts.even_weight[resource] != 0:
            delta += uneven(facts, host, resource, used + amount)
            delta -= uneven(facts, host, resource, used)
        if facts.slot[resource] != 0:
            delta += beside_slots(facts, host, resource, used + amount)
            delta -= beside_slots(facts, host, resource, used)
    for pair in range(len(facts.pairs)):
        one, other, target = facts.pairs[pair, 0], facts.pairs[pair, 1], facts.pairs[pair, 2]
        lacks = target * (facts.capacity[host, one] - state.used[host, one])
        lacks -= facts.capacity[host, other] - state.used[host, other]
        shift = sign * (facts.demand[vm, other] - target * facts.demand[vm, one])
        delta += facts.pairs[pair, 3] * (over(lacks + shift) - over(lacks))
    if sign > 0 and state.vm_count[host] == 0:
        delta += facts.used_cost[host]
    if sign < 0 and state.vm_count[host] == 1:
        delta -= facts.used_cost[host]
    start = facts.start[vm]
    if host != start:
        delta += sign * facts.move_cost[vm]
        if len(facts.way_cost):
            delta += sign * facts.way_cost[start, host]
    return delta


@inlined
def has_room(facts: Facts, state: State, host: int, vm: int) -> bool:
    """Say whether a VM that is taken out fits on a host."""
    home = facts.start[vm] == host
    for resource in range(facts.capacity.shape[1]):
        amount = facts.demand[vm, resource]
        if facts.transient[resource]:
            if not home and amount > 0:
                if state.kept[host, resource] + amount > facts.capacity[host, resource]:
                    return False
        elif amount > 0 and state.used[host, resource] + amount > facts.capacity[host, resource]:
            return False
    return True


@kernel
def may_join(facts: Facts, state: State, hand: Hand, vm: int, host: int) -> bool:
    """Say whether the rules of its groups let a VM that is taken out onto a host."""
    for at in range(facts.group_start[vm], facts.group_start[vm + 1]):
        group = int64(facts.group_of[at])
        domain = int64(facts.domain[host, facts.groups[group, _LEVEL]])
        if domain < 0:
            return False
        rule = facts.groups[group, _RULE]
        if rule == APART:
            if in_domain(facts, state, group, domain) >= facts.groups[group, _BOUND]:
                return False
        elif rule == WIDE:
            spread = state.spread[group] + hand.taken[group] - 1
            if in_domain(facts, state, group, domain) == 0:
                spread += 1
            if spread < facts.groups[group, _BOUND]:
                return False
        for need in range(facts.need_start[group], facts.need_start[group + 1]):
            needed = int64(facts.need[need])
            if needed != group and in_domain(facts, state, needed, domain) == 0:
                return False
    return True


@kernel
def shift(facts: Facts, state: State, hand: Hand, vm: int, host: int, sign: int) -> None:
    """Put a VM onto a host (sign 1) or take it out (-1); the caller adds up the cost."""
    home = facts.start[vm] == host
    for resource in range(facts.demand.shape[1]):
        amount = sign * facts.demand[vm, resource]
        state.used[host, resource] += amount
        if not home:
            state.kept[host, resource] += amount
    state.vm_count[host] += sign
    if sign > 0:
        link(state, vm, host)
        state.place[vm] = host
    else:
        unlink(state, vm, host)
        state.place[vm] = -1
    for at in range(facts.group_start[vm], facts.group_start[vm + 1]):
        group = int64(facts.group_of[at])
        hand.taken[group] -= sign
        first = facts.count_at[group]
        domain = facts.domain[host, facts.groups[group, _LEVEL]]
        if first < 0 or domain < 0:
            continue
        count = state.counts[first + domain] + sign
        state.counts[first + domain] = count
        if sign > 0 and count == 1:
            state.spread[group] += 1
        elif sign < 0 and count == 0:
            state.spread[group] -= 1


@kernel
def take_out(facts: Facts, state: State, hand: Hand, hosts: int, most: int) -> int:
    """Take VMs of some random hosts out; return how many."""
    count = 0
    for _ in range(hosts):
        host = int64(state.place[facts.movable[draw(state, len(facts.movable))]])
        if host < 0:
            continue
        left = most // hosts
        # Starting somewhere in the chain gives everyone its turn.
        skip = draw(state, max(1, state.vm_count[host] - left + 1))
        vm = int64(state.first[host])
        while vm >= 0 and left > 0:
            following = int64(state.after[vm])
            if skip > 0:
                skip -= 1
            elif hand.liftable[vm]:
                hand.vm[count] = vm
                hand.source[count] = host
                count += 1
                left -= 1
            vm = following
        for at in range(count):
            if state.place[hand.vm[at]] >= 0:
                lifted = int64(hand.vm[at])
                state.sums[COST] += host_delta(facts, state, host, lifted, -1)
                shift(facts, state, hand, lifted, host, -1)
    return count


@kernel
def arrange(state: State, hand: Hand, count: int) -> None:
    """Shuffle those taken out, or put the largest first."""
    by_size = draw(state, 2) == 0
    for at in range(1, count):
        if by_size:
            back = at
            while back > 0 and hand.size[hand.vm[back]] > hand.size[hand.vm[back - 1]]:
                swap(hand, back, back - 1)
                back -= 1
        else:
            swap(hand, at, draw(state, at + 1))


@inlined
def swap(hand: Hand, one: int, other: int) -> None:
    """Exchange two places of the hand."""
    vm, source = hand.vm[one], hand.source[one]
    hand.vm[one], hand.source[one] = hand.vm[other], hand.source[other]
    hand.vm[other], hand.source[other] = vm, source


@kernel
def best_host(facts: Facts, state: State, hand: Hand, vm: int) -> int:
    """Return the host on which a VM that is taken out costs least, -1 if none takes it.

    One in 32 is overlooked, so that the same VMs are not always arranged in the same way.
    """
    hosts = len(facts.capacity)
    asked = min(hosts, ASKED)
    first = draw(state, hosts)
    best, lowest = int64(-1), int64(FORBIDDEN)
    for step in range(asked):
        host = first + step
        if host >= hosts:
            host -= hosts
        if not facts.allowed[facts.vm_class[vm], host] and facts.start[vm] != host:
            continue
        if not has_room(facts, state, host, vm):
            continue
        delta = host_delta(facts, state, host, vm, 1)
        if delta >= lowest or draw(state, 32) == 0:
            continue
        if facts.group_start[vm] != facts.group_start[vm + 1]:
            if not may_join(facts, state, hand, vm, host):
                continue
        best, lowest = host, delta
    return best


@kernel
def served(facts: Facts, state: State, hand: Hand, count: int) -> bool:
    """Say whether every domain that lost a member still has whom others there need."""
    for at in range(count):
        vm, host = int64(hand.vm[at]), int64(hand.source[at])
        for entry in range(facts.group_start[vm], facts.group_start[vm + 1]):
            group = int64(facts.group_of[entry])
            if facts.serve_start[group] == facts.serve_start[group + 1]:
                continue
            domain = int64(facts.domain[host, facts.groups[group, _LEVEL]])
            if domain < 0 or in_domain(facts, state, group, domain) > 0:
                continue
            for serve in range(facts.serve_start[group], facts.serve_start[group + 1]):
                if in_domain(facts, state, int64(facts.serve[serve]), domain) > 0:
                    return False
    return True


@kernel
def put_back(facts: Facts, state: State, hand: Hand, count: int) -> None:
    """Undo a round."""
    for at in range(count):
        vm = int64(hand.vm[at])
        if state.place[vm] >= 0:
            note_away(facts, state, vm, int64(state.place[vm]), int64(hand.source[at]))
            shift(facts, state, hand, vm, int64(state.place[vm]), -1)
    for at in range(count):
        shift(facts, state, hand, int64(hand.vm[at]), int64(hand.source[at]), 1)


@entry_point
def ruin(
    facts: Facts, state: State, hand: Hand, rounds: int, heat: float, odds: Floats, hosts: int
) -> int:
    """Make so many rounds, each with some VMs of so many hosts; return how many changed things."""
    made = 0
    for _ in range(rounds):
        before, most_away = state.sums[COST], state.sums[MOST_AWAY]
        most = hosts + draw(state, len(hand.vm) - hosts + 1)
        count = take_out(facts, state, hand, hosts, most)
        arrange(state, hand, count)
        failed, same = False, True
        for at in range(count):
            vm = int64(hand.vm[at])
            host = best_host(facts, state, hand, vm)
            if host < 0:
                failed = True
                break
            same = same and host == hand.source[at]
            state.sums[COST] += host_delta(facts, state, host, vm, 1)
            shift(facts, state, hand, vm, host, 1)
            note_away(facts, state, vm, int64(hand.source[at]), host)
        if not failed and same:
            continue
        state.sums[COST] += facts.away_weight[0] * (state.sums[MOST_AWAY] - most_away)
        delta = state.sums[COST] - before
        if not failed:
            failed = delta > 0 and delta > heat * odds[draw(state, len(odds))]
        if not failed:
            failed = not served(facts, state, hand, count)
        if failed:
            put_back(facts, state, hand, count)
            state.sums[COST] = before
            state.sums[MOST_AWAY] = most_away
        else:
            made += 1
            state.sums[MADE] += count
    return made
