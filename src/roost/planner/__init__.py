"""Plans of moves: which VMs should be elsewhere, in which order, and what that costs.

Pure: no I/O, no clock, no threads. What a plan may contain the engine's own filters decide; time
limits come as the caller's questions between batches of steps.

    problem      the general form of "who should be where", as arrays
    formulating  a fleet as a problem: formulate(engine, wishes) -> Formulated(problem, hosts, vms)
    search       search(problem, steps, seed) -> Found(moves, cost, ...), compiled local search
    rolling      maintenance of many hosts, in groups that rules and N+1 allow
    rehearsal    the waves of a draft, as agents would make them
    sparing      whether a fleet could do without some hosts and lose k more (N+k)
    waves        order(problem, moves, limits) -> Ordered(waves, impossible), safe in every prefix
    kernels      the compiled loops of the search
    board        the fleet of one moment, on which the engine is asked about moves
    cost         what one move takes: rounds of pre-copy, bytes, seconds, stand-still
    windows      times in which a plan may run, and how good each one is
    guards       who may veto a move, and why
    power        what hosts draw, by the curves that their labels give
    goals        what a plan is for, one file each: they propose moves
    drafting     a goal's proposals, guarded, ordered in waves, with before and after
"""
