"""The compiled loops of the planner: typed arrays in, caller-owned arrays filled, no allocation.

Every kernel here has a plain-loop twin in tests/naive/planner.py, and the package also runs with
the compiler off (NUMBA_DISABLE_JIT=1).

    compiling   the decorators, and where compiled code is kept
    tables      what the kernels read and change
    random      random numbers that plain code draws alike
    amounts     what amounts cost and whether they fit
    rules       what the rules of groups say of a move
    moving      one VM moved
    trials      a move or an exchange: its change of cost
    annealing   random trials at a temperature
    choosing    random trials with only so many VMs away
    ruining     VMs taken out together and put back where it is best
    descending  the way down to where no move is better
"""
