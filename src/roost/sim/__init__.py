"""The virtual world: control plane and agents as in production, on simulated time, network, storage
and crashes. One seed, one history, one digest.

    history (seed or file) --> world --> planes, hosts, clients on one virtual loop
                                |
                                +--> laws after every event --> verdict, digest, coverage

- `campaign` runs many worlds, `world` one; `actors` do what a history says, on planes and hosts;
- `faults` are what goes wrong, `laws` what must hold all the same;
- `rented` are worlds of jobs on machines that a simulated cloud rents, with laws of their own;
- `histories` are what happens, as data; `ground` is time, network and the lives of processes.
"""
