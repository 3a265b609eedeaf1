"""Room that is promised: `proposals` of creates, `capacity` that they are compared with, holds.

`holding` writes what hosts hold, `holdsums` is its arithmetic, `makingroom` holds what is freed for
a VM that waits.
"""
