"""The exact search behind all-or-nothing batches, where placing one after the other fails.

    problem       equal VMs and equal hosts taken together: what has to be decided
    seats         the ways in which a VM can sit on a host: devices and NUMA cells
    program       the decision as an integer program for CP-SAT
    checking      a solution held against the engine's own filters, step by step
    searching     the search: programs, solutions, what was proven
    restrictions  what could be lifted, by name: rules, groups, constraints of the VMs
    relaxing      the smallest set of these without which the batch fits

Deterministic: one worker, a fixed seed, and limits in CP-SAT's deterministic time. Only `program`
imports OR-Tools, which takes longer to load than most placements.
"""
