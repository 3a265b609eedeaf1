"""RUN: the agent of one host. It converges what runs on what is desired, and reports back.

    talk          join, register, and the session with a control plane (one WebSocket)
       |
    reconciler    desired list + what the driver shows -> converge (pure) -> lanes -> driver
       |
    drivers       the port to a hypervisor: virtual, qemu
    fencing       lease and guard: VMs that may run elsewhere stop when this host is cut off

`agent` and `compose` put one together. `desired`, `capacity`, `budget`, `crashes`, `teardown` and
`store` are what the reconciler keeps, `sightings` what it reports; `machine` reads what the host
has, `memoryguard` is the guard of a simulated host. Lanes, links and images are in `roost.hostkit`.

The agent has the last word on its own capacity, and never destroys what it was not told to
destroy.
"""
