"""RUN: the agent of one host. It converges what runs on what is desired, and reports back.

    session  <-> control plane (one WebSocket, wire/agentlink)
       |
    reconciler   desired list + what the driver shows -> converge (pure) -> lanes -> driver
       |
    lease, fencing, guard: VMs that may run elsewhere stop when this host is cut off

The agent has the last word on its own capacity, and never destroys what it was not told to
destroy.
"""
