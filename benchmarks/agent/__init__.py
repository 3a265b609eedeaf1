"""What the agent costs beside QEMU driven by hand, and how many agents and VMs one machine holds.

A real `roost serve` on SQLite and real `roost agent` processes, as anybody would start them. Boots
and live moves are timed from the order to the ledger, in turns with the same boot and the same
migration driven by a script of ours over QMP, on the same command line. Every guest must really
have come up, and every counter must have gone on at +1, before a number is believed.

    make bench-agent        python -m benchmarks.agent [--short] [--only ROW]
"""
