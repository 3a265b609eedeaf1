"""The compiled loops of the analysis: typed arrays in, caller-owned arrays filled, no allocation.

Every kernel here has a plain-loop twin in tests/naive/analysis.py, and the package also runs with
the compiler off (NUMBA_DISABLE_JIT=1). Batches are [series, step].

    compiling   the decorators, and where compiled code is kept
    flattening  level and trend taken out, means of blocks
    lines       peaks of a spectrum over their background
    refining    slow lines fitted together with level and trend
    cycles      which lines are periods of their own
    folding     the profile of a cycle, and whether the last one followed it
    backtest    every model tried on the past of a series, forecasts, one more sample
"""
