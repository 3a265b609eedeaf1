"""The use cases of the control plane, in rooms; a room may import those below it.

plane      the process: every part, built from what it was given, in one ordered tuple
admin      projects and quotas, what operators do with hosts, the doctor
agents     connections of agents, desired lists out, reports in
survive    silence, fencing, recovery, a ledger that was restored from an old copy
moves      a move begun, stepped to its end or taken back; drains
create     new VMs and VMs that wait: ask the engine, propose a claim, commit it; dry runs
series     what VMs and hosts used over time: readings in, filed by one process, series out
vms        VMs that exist: look up, show, start, stop, resize, delete
memory     what one process knows without asking: follower, roster, specs, events, counters
hosts      hosts as rows: registration, and every later change
timers     how long the control plane waits for what

Nothing here opens a socket or reads a clock by itself. What use cases share lies in `roost.parts`.
"""
