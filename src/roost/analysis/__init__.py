"""LEARN: from the samples of a VM to what it does, when, and what it will do next.

Pure: no clock, no I/O, no randomness of its own; times are integers (seconds), series are arrays,
batches are float64 [series, step] with NaN for gaps. The heads of the modules are the parts in
the order in which a series goes through them:

    store          the port to where series are kept; `roost.series` and a Prometheus implement it
    grid           samples to a regular grid, with counts of what was wrong
    periods        cycles of many series at once
    profiles       patterns with confidence, numbers and stability of a series
    calibration    the table that confidences are read from
    forecasting    values ahead with intervals, by batch and sample by sample
    features       the few numbers from which a class is told
    classes        classes of workloads, advice on sizes, VMs that nobody needs
    class_weights  the numbers of the classes' network
    lifetime       what is left of a VM's life, from counts
    days           the course of a VM's cpu through a day
    outlook        what the engine is told: predicted use of hosts, expected use of VMs
    correlation    resources with a lag, VMs that peak together
    oversubscription  how often a host's cpu may be promised
    fleetreport    a fleet's week in one report
    kernels        the compiled loops, the only place of Numba here
"""
