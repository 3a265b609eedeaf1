"""Random trials with at most so many VMs away from their start: which VMs to move is the question.

A VM that is chosen may be sent elsewhere or home again; another is chosen only while there are too
few, or for one that goes home in the same trial. Exchanges are left out: each takes two of the few
moves, and those that change nothing crowd out the rest.
"""

from typing import NamedTuple

from roost.fleet.layout import Int32Array, Int64Array
from roost.placement.kernels.compiling import int64
from roost.planner.kernels.amounts import fit
from roost.planner.kernels.compiling import entry_point, kernel
from roost.planner.kernels.moving import move
from roost.planner.kernels.random import draw
from roost.planner.kernels.tables import COST, FORBIDDEN, MADE, Facts, Floats, State
from roost.planner.kernels.trials import delta_of, make

#: Trials in 1024 that are about a VM that is chosen already, and of those one in so many goes home.
AGAIN, HOME_IN = 717, 5


class Chosen(NamedTuple):
    """The VMs that are away from their start.

    | field | dtype, shape | meaning |
    |---|---|---|
    | vm | int32 [most] | who |
    | at | int32 [vms] | where each VM is in that list, -1 if it is not |
    | how_many | int64 [1] | how many |
    """

    vm: Int32Array
    at: Int32Array
    how_many: Int64Array


@kernel
def note_chosen(facts: Facts, state: State, chosen: Chosen, vm: int) -> None:
    """Put a VM that was moved into the list, or take out one that went home."""
    at = int64(chosen.at[vm])
    if state.place[vm] != facts.start[vm]:
        if at < 0:
            chosen.at[vm] = chosen.how_many[0]
            chosen.vm[chosen.how_many[0]] = vm
            chosen.how_many[0] += 1
    elif at >= 0:
        chosen.how_many[0] -= 1
        last = int64(chosen.vm[chosen.how_many[0]])
        chosen.vm[at] = last
        chosen.at[last] = at
        chosen.at[vm] = -1


@entry_point
def choose(
    facts: Facts, state: State, chosen: Chosen, steps: int, heat: float, odds: Floats
) -> int:
    """Try so many changes that leave no more VMs away than the list holds; return how many held."""
    held = 0
    for _ in range(steps):
        count = int64(chosen.how_many[0])
        if count > 0 and draw(state, 1024) < AGAIN:
            vm = int64(chosen.vm[draw(state, count)])
            there = draw(state, len(facts.capacity))
            if draw(state, HOME_IN) == 0:
                there = int64(facts.start[vm])
        else:
            vm = int64(facts.movable[draw(state, len(facts.movable))])
            there = draw(state, len(facts.capacity))
            if chosen.at[vm] >= 0:
                continue
        if there == state.place[vm]:
            continue
        back, left = int64(-1), int64(-1)
        if chosen.at[vm] < 0 and count == len(chosen.vm):
            back = int64(chosen.vm[draw(state, count)])
            left = int64(state.place[back])
        # Most are refused here; a call of `delta_of` hands over every array.
        here = int64(state.place[vm])
        if left != there and not fit(facts, state, vm, here, there, int64(-1)):
            continue
        before = state.sums[COST]
        if back >= 0:
            home = int64(facts.start[back])
            delta = delta_of(facts, state, back, home, int64(-1))
            if delta == FORBIDDEN:
                continue
            make(facts, state, back, home, int64(-1), delta)
        delta = delta_of(facts, state, vm, there, int64(-1))
        if delta != FORBIDDEN:
            change = state.sums[COST] + delta - before
            if change <= 0 or change <= heat * odds[draw(state, len(odds))]:
                make(facts, state, vm, there, int64(-1), delta)
                if back >= 0:
                    note_chosen(facts, state, chosen, back)
                note_chosen(facts, state, chosen, vm)
                held += 1
                continue
        if back >= 0:
            move(facts, state, back, left)
            state.sums[COST] = before
            state.sums[MADE] -= 1
    return held
