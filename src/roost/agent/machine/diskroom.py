"""Whether the file system of a host's VMs is full, so that no new VM should come.

A host that is full says so by a taint of its own, which goes again by itself: it is full below one
bound of free bytes and has room again above a higher one, so that it does not flicker between.
"""

import os
from pathlib import Path

from roost.wire.agentlink import TaintInfo

#: The taint of a host whose disk is full. VMs that tolerate it are still placed there.
DISK_FULL = TaintInfo("roost/disk-full")
#: Full below this share of the file system, but never for want of more than so many bytes.
_SHARE = 0.02
_MOST_BYTES = 1 << 30


class DiskRoom:
    """Watches the free bytes of one file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._full = False

    def conditions(self) -> list[TaintInfo]:
        """Return the taint of a full disk, or nothing; blocks."""
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return [DISK_FULL] if self._full else []  # what cannot be read changes nothing
        return self.judge(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def judge(self, free_bytes: int, total_bytes: int) -> list[TaintInfo]:
        """Return the taint of a file system with so much room."""
        bound = min(_MOST_BYTES, int(total_bytes * _SHARE))
        self._full = free_bytes < (2 * bound if self._full else bound)
        return [DISK_FULL] if self._full else []
