"""DECIDE: from a request and a fleet to a placement, or to a rejection that says why.

Pure: no clock, no randomness of its own, no I/O. Everything that places, explains, counts,
drains, rebalances or simulates calls `Engine` here; nothing decides beside it.
"""
