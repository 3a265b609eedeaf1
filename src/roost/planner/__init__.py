"""Plans of moves: which VMs should be elsewhere, in which order, and what that costs.

Pure: no I/O, no clock, no threads. What a plan may contain the engine's own filters decide; time
limits come as the caller's questions between batches of steps.

    problem      the general form of "who should be where", as arrays
    formulating  a fleet as a problem: formulate(engine, wishes) -> Formulated(problem, hosts, vms)
    search       search(problem, steps, seed) -> Found(moves, cost, ...), compiled local search
    waves        order(problem, moves, limits) -> Ordered(waves, impossible), safe in every prefix
    kernels      the compiled loops of the search
"""
