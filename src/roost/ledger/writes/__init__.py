"""A transaction and its events: `transaction`, and `statements` that are built once.

`membership` moves the generations of groups within one.
"""
