"""The virtual world: control plane and agents as in production, on simulated time, network, storage
and crashes. One seed, one history, one digest.

    history (seed or file) --> world --> planes, hosts, clients on one virtual loop
                                |
                                +--> laws after every event --> verdict, digest, coverage
"""
