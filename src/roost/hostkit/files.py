"""Small files that survive a crash: written whole or not at all, and damaged ones are put aside.

A file is written beside its place, forced to disk and renamed. A reader that finds one broken
moves it away under a new name, so that it can be looked at, and says so: broken is never empty.
"""

import os
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote, unquote

from roost.base import private

_LONGEST_NAME = 120


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file by a private one in one step; `durable` also survives a power cut."""
    beside, file = private.open_beside(path)
    try:
        with file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_aside(path: Path) -> Path:
    """Move a broken file away under the first free name and return that name."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}.broken-{number}")
        if not aside.exists():
            path.replace(aside)
            return aside
    path.unlink()
    return path


def file_name(vm_id: str) -> str:
    """Return the name of a VM's file: harmless whatever the id is."""
    quoted = quote(vm_id, safe="")
    if len(quoted) > _LONGEST_NAME:
        quoted = "%" + blake2b(vm_id.encode(), digest_size=16).hexdigest()
    return f"{quoted}.json"


def id_of(path: Path) -> str:
    """Return the VM's id from its file's name, as far as the name tells it."""
    return unquote(path.name.removesuffix(".json"))
