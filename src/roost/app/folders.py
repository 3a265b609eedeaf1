"""Data folders of the processes an operator starts: made private, and mended if they are not."""

import logging
from collections.abc import Iterable
from pathlib import Path

from roost.base.private import is_shared, make_folder, tighten_folder

log = logging.getLogger("roost.folders")


def close_to_others(folder: Path, names: Iterable[str]) -> None:
    """Make a data folder, or close one that is there to other users; say what was changed.

    Only what roost keeps there, by name, is touched.
    """
    make_folder(folder)
    if changed := tighten_folder(folder, names):
        log.warning(
            "other users could read or enter %d files and folders of %s; they are closed now",
            len(changed),
            folder,
        )
    if is_shared(folder):
        log.warning("%s is shared with other users and left open; files in it are not", folder)
