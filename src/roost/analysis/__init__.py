"""LEARN: from the samples of a VM to what it does, when, and what it will do next.

Pure: no clock, no I/O, no randomness of its own; times are integers (seconds), series are arrays,
batches are float64 [series, step] with NaN for gaps. The heads of the modules are the parts in
the order in which a series goes through them:

    grid      samples to a regular grid, with counts of what was wrong
    periods   cycles of many series at once
    kernels   the compiled loops, the only place of Numba here
"""
