"""The use cases of the control plane, one verb per file.

admit      create VMs: place, claim, answer         lifecycle  start, stop, resize, delete
dispatch   desired lists to agents                  intake     agents' reports to the ledger
liveness   who is heard of                          recover    fence, and restart elsewhere
queueing   VMs that wait for room                   moving     migrate, drain
roster     the fleet in memory, folded from events  questions  dry run, capacity, explain
"""
