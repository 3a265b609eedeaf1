"""The mark that a copy has taken over: one byte on disk, written before its guest executes.

The guest stands still until that byte is safe. To replace the manifest takes several forced writes
(18 ms on a busy disk), to change one byte of a file that is there takes one (1 to 5 ms) and needs
no room; so the byte is written first and the manifest follows. A mark counts for an incoming copy
only, and is taken away before a new one is made.
"""

import os
from pathlib import Path

from roost.base import private
from roost.hostkit.files import sync_folder

NAME = "arrived"

_NOT_YET, _ARRIVED = b"0", b"1"


def clear_mark(folder: Path) -> None:
    """Remove the arrival mark of an earlier copy, durably; blocks."""
    if (folder / NAME).exists():
        (folder / NAME).unlink()
        sync_folder(folder)


class Mark:
    """The mark of one copy that waits, open and ready to be set."""

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, private.FILE)
        try:
            if os.pread(descriptor, 1, 0) != _ARRIVED:
                os.pwrite(descriptor, _NOT_YET, 0)
                os.fsync(descriptor)
                sync_folder(folder)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def set(self) -> None:
        """Mark the copy as arrived; it holds once this returns. Blocks."""
        os.pwrite(self._descriptor, _ARRIVED, 0)
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the mark's file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_marked(folder: Path) -> bool:
    """Return whether a copy in this folder was marked as arrived."""
    try:
        return (folder / NAME).read_bytes() == _ARRIVED
    except FileNotFoundError:
        return False
