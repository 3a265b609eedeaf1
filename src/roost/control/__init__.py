"""The use cases of the control plane, in rooms; a room may import those below it.

plane         the process: every part, built from what it was given, in one ordered tuple
admin         projects and quotas, what operators do with hosts, the doctor
agents        connections of agents, desired lists out, reports in
survive       silence, fencing, recovery, a ledger that was restored from an old copy
preempt       room for a VM that waits, made by VMs of lower priority
plans         plans of moves: drafted, kept, carried out in waves; maintenance, balance by itself
topology      the network between hosts: described, measured, followed; who talks with whom
moves         a move begun, stepped to its end or taken back; drains
create        new VMs and VMs that wait: ask the engine, propose a claim, commit it; dry runs
policies      bundles of how VMs are placed: made, changed, compared, tried on past requests
reservations  capacity kept in time: units placed, moved when a host is lost, ended
rules         constraints: made, changed, tried, checked, switched, expired
priorities    priority classes by name
flavors       the amounts of VMs by name
groups        groups of VMs: what they ask of their members, who belongs to them, budgets
learning      what VMs and hosts will use and when VMs end, brought to the fleet that decides
series        what VMs and hosts used over time: readings in, filed by one process, series out
vms           VMs that exist: look up, show, start, stop, resize, delete
memory        what one process knows without asking: follower, roster, specs, events, counters
hosts         hosts as rows: registration, and every later change
timers        how long the control plane waits for what

Nothing here opens a socket or reads a clock by itself. What use cases share lies in `roost.parts`.
"""
