"""Privacy towards other users of the same machine: modes of files, and what a process shows.

Every mode that roost chooses for what it keeps on disk is chosen here, so that whoever must share
something with another user (QEMU under one of its own, say) changes this module and no other.
`withdraw_process` comes first in every process that holds secrets; `tighten` mends what earlier
releases left open. Standard library only: the fence guard uses it too.
"""

import ctypes
import os
import pwd
import resource
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

FOLDER = 0o700
#: Of a folder that another group was given a way through; it sees no names.
GIVEN_FOLDER = 0o710
FILE = 0o600
#: Of images: nobody changes one that has its digest for a name.
READ_ONLY_FILE = 0o400

_OTHERS = 0o077
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Parts of the path of a folder that lies directly in `/`.
_TOP = 2
_PR_SET_DUMPABLE = 4
#: Variables that open something: for this process, and for none that it starts.
_SECRET_VARIABLES = ("ROOST_TOKEN", "ROOST_JOIN_TOKEN", "ROOST_DATABASE", "PGPASSWORD")


def withdraw_process() -> None:
    """Keep other users out: files are made private, and memory is in no core dump.

    The limit holds for processes that this one starts, too; that no debugger of the same user may
    attach, and that nothing is piped to a program that collects crashes, for this one alone.
    """
    os.umask(_OTHERS)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def plain_environment() -> dict[str, str]:
    """Return the environment for processes that this one starts: without what opens something."""
    return {name: value for name, value in os.environ.items() if name not in _SECRET_VARIABLES}


def make_folder(path: Path) -> Path:
    """Make a folder that only its owner can enter; parents that are missing too."""
    for each in reversed([path, *path.parents]):
        if not each.exists():
            each.mkdir(mode=FOLDER, exist_ok=True)
    return path


def make_file(path: Path) -> None:
    """Make an empty file that only its owner can read; one that is there is kept as it is."""
    with suppress(FileExistsError):
        os.close(os.open(path, _NEW, FILE))


def open_beside(path: Path) -> tuple[Path, BinaryIO]:
    """Make a file beside another, to be written and renamed to it; nobody can know its name before.

    So nobody who may write to the folder can have a file or a link there that is written instead.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    return beside, os.fdopen(os.open(beside, _NEW, FILE), "wb")


def tighten(paths: Iterable[Path]) -> list[Path]:
    """Take from other users what they may do to these; return what was changed.

    What is missing, is a link, or belongs to another user is left: it is not ours to close. So is a
    way through a folder for a group that it was given to: a QEMU that runs needs its own.
    """
    changed = []
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):
            status = path.lstat()
            if status.st_uid != os.geteuid() or not _is_kept(status.st_mode):
                continue
            given = stat.S_IMODE(status.st_mode) == GIVEN_FOLDER and status.st_gid != os.getegid()
            if given and stat.S_ISDIR(status.st_mode):
                continue
            if open_bits := stat.S_IMODE(status.st_mode) & _OTHERS:
                path.chmod(stat.S_IMODE(status.st_mode) & ~open_bits)
                changed.append(path)
    return changed


def tighten_folder(folder: Path, names: Iterable[str], *, ours: Iterable[str] = ()) -> list[Path]:
    """Take from other users what they may do to a folder, and to what roost keeps in it by name.

    The folder itself is closed only if it is roost's: if nothing is in it but these names and
    `ours`. What is in it beside those names is never touched.
    """
    names = tuple(names)
    changed = tighten([folder]) if is_ours(folder, (*names, *ours)) else []
    return changed + tighten(path for name in names for path in _below(folder / name))


def is_ours(folder: Path, names: Iterable[str]) -> bool:
    """Say whether only roost uses a folder: its own, with nothing in it but what has these names.

    A home, a mount point, `/` and what lies directly in it are for others, whatever is in them.
    """
    status, real = folder.stat(), folder.resolve()
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX:
        return False
    if len(real.parts) <= _TOP or real.is_mount() or real in _homes():
        return False
    kept = tuple(names)
    with os.scandir(folder) as entries:
        return all(
            entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            and _bears_name(entry.name, kept)
            for entry in entries
        )


def is_open(folder: Path) -> bool:
    """Say whether other users may do anything with a folder."""
    return bool(folder.stat().st_mode & _OTHERS)


def _bears_name(found: str, names: Iterable[str]) -> bool:
    """Say whether a file has one of these names, or lies beside one that has (`roost.db-wal`)."""
    plain = found.lstrip(".")
    return any(plain == name or plain.startswith((f"{name}.", f"{name}-")) for name in names)


def _homes() -> set[Path]:
    found = {Path.home().resolve()}
    with suppress(KeyError):
        found.add(Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve())
    return found


def _is_kept(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _below(path: Path) -> Iterator[Path]:
    yield path
    for root, folders, files in os.walk(path):
        yield from (Path(root, name) for name in (*folders, *files))
