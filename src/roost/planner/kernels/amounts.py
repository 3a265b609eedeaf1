"""What amounts cost and whether they fit, when one VM leaves a host for another's place."""

from roost.planner.kernels.compiling import inlined
from roost.planner.kernels.tables import Facts, State

#: Load beyond which a host is no worse: keeps squared distances within the machine's integers.
MOST_LOAD = 1 << 22


@inlined
def over(amount: int) -> int:
    """Return what an amount is above zero."""
    return amount if amount > 0 else 0


@inlined
def uneven(facts: Facts, host: int, resource: int, amount: int) -> int:
    """Return the cost of a host's distance from the common load of a resource."""
    load = int(amount * facts.even_rate[host, resource])
    distance = min(load, MOST_LOAD) - facts.even_target[resource]
    return (facts.even_weight[resource] * (distance * distance)) >> 20


@inlined
def beside_slots(facts: Facts, host: int, resource: int, used: int) -> int:
    """Return the cost of what is free on a host and makes no whole slot."""
    free = facts.capacity[host, resource] - used
    return facts.slot_weight[resource] * (free % facts.slot[resource])


@inlined
def fit(facts: Facts, state: State, vm: int, here: int, there: int, other: int) -> bool:
    """Say whether a VM has room on another host, and the one that comes in its place here.

    What a VM that started on a host asks for of a transient resource was never given up there, and
    is not given up when it leaves. `other` is -1 where nobody comes in its place.
    """
    for resource in range(facts.capacity.shape[1]):
        amount = facts.demand[vm, resource]
        back = facts.demand[other, resource] if other >= 0 else 0
        if not facts.transient[resource]:
            grows = amount - back
            if grows > 0:
                if state.used[there, resource] + grows > facts.capacity[there, resource]:
                    return False
            elif grows < 0 and other >= 0:
                if state.used[here, resource] - grows > facts.capacity[here, resource]:
                    return False
            continue
        grows = amount if facts.start[vm] != there else 0
        if other >= 0:
            if facts.start[other] != there:
                grows -= back
            shrinks = amount if facts.start[vm] != here else 0
            comes = back if facts.start[other] != here else 0
            if comes > shrinks:
                if state.kept[here, resource] + comes - shrinks > facts.capacity[here, resource]:
                    return False
        if grows > 0 and state.kept[there, resource] + grows > facts.capacity[there, resource]:
            return False
    return True


@inlined
def amounts_delta(facts: Facts, state: State, vm: int, here: int, there: int, other: int) -> int:
    """Return by how much the costs of two hosts change."""
    delta = 0
    for resource in range(facts.capacity.shape[1]):
        amount = facts.demand[vm, resource]
        if other >= 0:
            amount -= facts.demand[other, resource]
        if amount == 0:
            continue
        used_here, used_there = state.used[here, resource], state.used[there, resource]
        weight = facts.load_weight[resource]
        if weight != 0:
            above = used_here - facts.safety[here, resource]
            change = over(above - amount) - over(above)
            above = used_there - facts.safety[there, resource]
            change += over(above + amount) - over(above)
            delta += weight * change
        if facts.even_weight[resource] != 0:
            delta += uneven(facts, here, resource, used_here - amount)
            delta -= uneven(facts, here, resource, used_here)
            delta += uneven(facts, there, resource, used_there + amount)
            delta -= uneven(facts, there, resource, used_there)
        if facts.slot[resource] != 0:
            delta += beside_slots(facts, here, resource, used_here - amount)
            delta -= beside_slots(facts, here, resource, used_here)
            delta += beside_slots(facts, there, resource, used_there + amount)
            delta -= beside_slots(facts, there, resource, used_there)
    for pair in range(len(facts.pairs)):
        one, another, target = facts.pairs[pair, 0], facts.pairs[pair, 1], facts.pairs[pair, 2]
        amount_one, amount_another = facts.demand[vm, one], facts.demand[vm, another]
        if other >= 0:
            amount_one -= facts.demand[other, one]
            amount_another -= facts.demand[other, another]
        shift = target * amount_one - amount_another
        lacks = target * (facts.capacity[here, one] - state.used[here, one])
        lacks -= facts.capacity[here, another] - state.used[here, another]
        change = over(lacks + shift) - over(lacks)
        lacks = target * (facts.capacity[there, one] - state.used[there, one])
        lacks -= facts.capacity[there, another] - state.used[there, another]
        change += over(lacks - shift) - over(lacks)
        delta += facts.pairs[pair, 3] * change
    if other < 0:
        if state.vm_count[there] == 0:
            delta += facts.used_cost[there]
        if state.vm_count[here] == 1:
            delta -= facts.used_cost[here]
    return delta


@inlined
def way_delta(facts: Facts, vm: int, here: int, there: int) -> int:
    """Return by how much the cost of a VM's way from its start changes."""
    start = facts.start[vm]
    delta = 0
    if here != start:
        delta -= facts.move_cost[vm]
        if len(facts.way_cost):
            delta -= facts.way_cost[start, here]
    if there != start:
        delta += facts.move_cost[vm]
        if len(facts.way_cost):
            delta += facts.way_cost[start, there]
    return delta
