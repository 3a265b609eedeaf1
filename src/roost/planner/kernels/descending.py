"""The way down: the best move of each VM until none is left, and moves that were not worth it."""

from roost.placement.kernels.compiling import int64
from roost.planner.kernels.compiling import entry_point
from roost.planner.kernels.tables import Facts, State
from roost.planner.kernels.trials import delta_of, make


@entry_point
def descend(facts: Facts, state: State) -> int:
    """Move each VM once to the host that lowers the cost most, if one does; return how many."""
    made = 0
    for at in range(len(facts.movable)):
        vm = int64(facts.movable[at])
        best, lowest = int64(-1), int64(0)
        for target in range(len(facts.capacity)):
            if target != state.place[vm]:
                delta = delta_of(facts, state, vm, int64(target), int64(-1))
                if delta < lowest:
                    best, lowest = target, delta
        if best >= 0:
            make(facts, state, vm, best, int64(-1), lowest)
            made += 1
    return made


@entry_point
def take_back(facts: Facts, state: State) -> int:
    """Send each VM home whose move costs no less than it gains; return how many."""
    made = 0
    for at in range(len(facts.movable)):
        vm = int64(facts.movable[at])
        home = int64(facts.start[vm])
        if state.place[vm] == home:
            continue
        delta = delta_of(facts, state, vm, home, int64(-1))
        if delta <= 0:
            make(facts, state, vm, home, int64(-1), delta)
            made += 1
    return made
