"""The rule language: conditions on hosts, VMs and the fleet, in a subset of CEL.

    text -> parsing -> syntax -> checking -> Condition -> evaluating (one host at a time)
                          |                      `------> columns (the engine, in `placement`)
                          `-> printing (text again), tree (the JSON form)

Pure: no I/O, no clock, no calendar. What a rule reads of the world is handed in.
"""
