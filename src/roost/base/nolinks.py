"""Files opened below a folder, through no link: what others put there leads nowhere else.

Each folder on the way is opened by a handle of the one above, so that nobody who may write there
can put something else into its place in between.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_below(folder: Path, parts: Sequence[str]) -> int:
    """Open a file below a folder; `parts` are the names on the way there, none of them `..`."""
    if not parts or any(part in ("", ".", "..") or "/" in part for part in parts):
        raise FileNotFoundError(errno.ENOENT, "no name below a folder", "/".join(parts))
    *above, name = parts
    at = os.open(folder, _FLAGS | os.O_DIRECTORY)
    try:
        for each in above:
            within = os.open(each, _FLAGS | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = within
        return os.open(name, _FLAGS, dir_fd=at)
    finally:
        os.close(at)
