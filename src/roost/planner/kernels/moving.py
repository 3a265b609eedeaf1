"""One VM moved in the search's state, and what moves cost by the group that lost most."""

from roost.fleet.layout import Int32Array
from roost.placement.kernels.compiling import int64
from roost.planner.kernels.compiling import entry_point, kernel
from roost.planner.kernels.tables import MOST_AWAY, Facts, State


@kernel
def away_change(facts: Facts, vm: int, source: int, target: int) -> int:
    """Return 1 if a move takes a VM away from its start, -1 if it brings it back, else 0."""
    start = facts.start[vm]
    if source == start and target != start:
        return 1
    if source != start and target == start:
        return -1
    return 0


@kernel
def note_away(facts: Facts, state: State, vm: int, source: int, target: int) -> None:
    """Count a move in the VM's group, and find the group that lost most."""
    group = facts.away_group[vm]
    step = away_change(facts, vm, source, target)
    if group < 0 or step == 0 or facts.away_weight[0] == 0:
        return
    count = state.away[group]
    state.away_how_many[count] -= 1
    count += step
    state.away[group] = count
    state.away_how_many[count] += 1
    most = state.sums[MOST_AWAY]
    if count > most:
        state.sums[MOST_AWAY] = count
    elif step < 0 and count + 1 == most and state.away_how_many[most] == 0:
        state.sums[MOST_AWAY] = most - 1


@kernel
def away_delta(facts: Facts, state: State, vm: int, source: int, target: int) -> int:
    """Return by how much the cost of the group that lost most changes."""
    group = facts.away_group[vm]
    if facts.away_weight[0] == 0 or group < 0:
        return 0
    step = away_change(facts, vm, source, target)
    count = state.away[group]
    most = state.sums[MOST_AWAY]
    if step > 0 and count == most:
        return facts.away_weight[0]
    if step < 0 and count == most and state.away_how_many[most] == 1:
        return -facts.away_weight[0]
    return 0


@kernel
def move(facts: Facts, state: State, vm: int, target: int) -> None:
    """Move a VM; the caller adds up the cost."""
    source = int64(state.place[vm])
    start = facts.start[vm]
    for resource in range(facts.demand.shape[1]):
        amount = facts.demand[vm, resource]
        state.used[source, resource] -= amount
        state.used[target, resource] += amount
        if source != start:
            state.kept[source, resource] -= amount
        if target != start:
            state.kept[target, resource] += amount
    state.vm_count[source] -= 1
    state.vm_count[target] += 1
    unlink(state, vm, source)
    link(state, vm, target)
    for at in range(facts.group_start[vm], facts.group_start[vm + 1]):
        group = facts.group_of[at]
        first = facts.count_at[group]
        if first < 0:
            continue
        level = facts.groups[group, 1]
        less, more = facts.domain[source, level], facts.domain[target, level]
        if less == more:
            continue
        if less >= 0:
            state.counts[first + less] -= 1
            if state.counts[first + less] == 0:
                state.spread[group] -= 1
        if more >= 0:
            state.counts[first + more] += 1
            if state.counts[first + more] == 1:
                state.spread[group] += 1
    note_away(facts, state, vm, source, target)
    state.place[vm] = target


@kernel
def link(state: State, vm: int, host: int) -> None:
    """Put a VM at the head of a host's chain."""
    head = state.first[host]
    state.after[vm] = head
    state.before[vm] = -1
    if head >= 0:
        state.before[head] = vm
    state.first[host] = vm


@kernel
def unlink(state: State, vm: int, host: int) -> None:
    """Take a VM out of a host's chain."""
    ahead, behind = state.before[vm], state.after[vm]
    if ahead >= 0:
        state.after[ahead] = behind
    else:
        state.first[host] = behind
    if behind >= 0:
        state.before[behind] = ahead


@entry_point
def move_many(facts: Facts, state: State, place: Int32Array) -> None:
    """Move every VM to its place in a column; the caller works out the cost."""
    for vm in range(len(place)):
        if state.place[vm] != place[vm]:
            move(facts, state, vm, place[vm])
