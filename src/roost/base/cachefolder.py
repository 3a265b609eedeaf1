"""Folders of the user's cache: what was made at some cost and can be made again.

Nothing here decides anything; the compiled kernels lie in such a folder, and code that is read
back from there is executed, so a folder that somebody else may write is not taken.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_folders() -> Iterator[Path]:
    """Yield where roost may cache for this user, the best first: ROOST_CACHE, then the home."""
    if named := os.environ.get("ROOST_CACHE"):  # empty is unset, not the folder that we are in
        yield Path(named)
    try:
        yield Path.home() / ".cache" / "roost"
    except RuntimeError:  # no home folder
        return


def is_ours(folder: Path) -> bool:
    """Make a folder when it is missing; tell whether we may write it and nobody else.

    A process of root with the home of another user (sudo keeps it) must not execute code of theirs.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
