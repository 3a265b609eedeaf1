"""One change tried: a VM moves, alone or in exchange for another, if the cost allows it."""

from roost.placement.kernels.compiling import int64
from roost.planner.kernels.amounts import amounts_delta, fit, way_delta
from roost.planner.kernels.compiling import entry_point, kernel
from roost.planner.kernels.moving import away_delta, move, note_away
from roost.planner.kernels.rules import rules_delta
from roost.planner.kernels.tables import COST, FORBIDDEN, MADE, Facts, State


@kernel
def delta_of(facts: Facts, state: State, vm: int, there: int, other: int) -> int:
    """Return the change of cost when a VM moves to another host, `FORBIDDEN` if that may not be.

    `other` is the VM there that comes in its place, -1 for none.
    """
    here = int64(state.place[vm])
    if not facts.allowed[facts.vm_class[vm], there] and facts.start[vm] != there:
        return FORBIDDEN
    if other >= 0 and not facts.allowed[facts.vm_class[other], here] and facts.start[other] != here:
        return FORBIDDEN
    if not fit(facts, state, vm, here, there, other):
        return FORBIDDEN
    delta = way_delta(facts, vm, here, there)
    if facts.group_start[vm] != facts.group_start[vm + 1]:
        change = rules_delta(facts, state, vm, here, there, other)
        if change == FORBIDDEN:
            return FORBIDDEN
        delta += change
    if other >= 0:
        delta += way_delta(facts, other, there, here)
        if facts.group_start[other] != facts.group_start[other + 1]:
            change = rules_delta(facts, state, other, there, here, vm)
            if change == FORBIDDEN:
                return FORBIDDEN
            delta += change
    if facts.away_weight[0] != 0:
        delta += away_delta(facts, state, vm, here, there)
        if other >= 0:
            note_away(facts, state, vm, here, there)
            delta += away_delta(facts, state, other, there, here)
            note_away(facts, state, vm, there, here)
    return delta + amounts_delta(facts, state, vm, here, there, other)


@kernel
def make(facts: Facts, state: State, vm: int, there: int, other: int, delta: int) -> None:
    """Make a change whose cost is known."""
    if other >= 0:
        move(facts, state, other, int64(state.place[vm]))
        state.sums[MADE] += 1
    move(facts, state, vm, there)
    state.sums[COST] += delta
    state.sums[MADE] += 1


@entry_point
def ask(facts: Facts, state: State, vm: int, there: int, other: int) -> int:
    """Return the change of cost as `delta_of` does."""
    return delta_of(facts, state, int64(vm), int64(there), int64(other))
