"""The compiled loops of the planner: typed arrays in, caller-owned arrays filled, no allocation.

Every kernel here has a plain-loop twin in tests/naive/planner.py, and the package also runs with
the compiler off (NUMBA_DISABLE_JIT=1).

    compiling   the decorators, and where compiled code is kept
"""
