"""A number of random trials at one temperature: the step of the search that leaves local optima."""

from roost.placement.kernels.compiling import int64
from roost.planner.kernels.compiling import entry_point
from roost.planner.kernels.random import draw
from roost.planner.kernels.tables import Facts, Floats, State
from roost.planner.kernels.trials import delta_of, make


@entry_point
def anneal(
    facts: Facts, state: State, steps: int, heat: float, odds: Floats, exchanges: int
) -> int:
    """Try so many random moves; return how many were made.

    `odds` are logarithms of evenly drawn numbers, negated: a trial may cost up to the heat times
    one of them. `exchanges` is their share in 1024 trials.
    """
    made = 0
    count = len(facts.movable)
    hosts = len(facts.capacity)
    for _ in range(steps):
        vm = int64(facts.movable[draw(state, count)])
        other = int64(-1)
        if draw(state, 1024) < exchanges:
            other = int64(facts.movable[draw(state, count)])
            there = int64(state.place[other])
        else:
            there = draw(state, hosts)
        if there == state.place[vm]:
            continue
        delta = delta_of(facts, state, vm, there, other)
        if delta > 0 and delta > heat * odds[draw(state, len(odds))]:
            continue
        make(facts, state, vm, there, other, delta)
        made += 1
    return made
