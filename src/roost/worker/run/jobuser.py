"""The user of jobs, where it is another than the worker's: what it is given, and how a job gets it.

A job's folder is its user's; through the folders above there is a way and no more, so neither the
worker's credential nor another attempt's files can be read or listed. A program is spawned with the
real ids of the warden set to the user's for that moment; `resetids` makes them the effective ones
in the new process alone, and executing a program drops what was saved. So no copy of the warden is
made, and nothing of its rights is left.

That moment is a window: a process of root has the real ids of the user, and the kernel lets whoever
has the same real id signal it. Another job of that user that hits it can end or stop the warden. It
cannot trace it nor read its memory: for that the effective and saved ids count, which stay root's
until the new program is there. Standard library only: wardens import it.
"""

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from roost.base import private

#: Parts of the path of a folder that lies directly in `/`.
_TOP = 2


class NoSuchUse(Exception):
    """Jobs cannot run under a user; says why."""


class JobUser(NamedTuple):
    """A user by its numbers, as it goes to a warden."""

    uid: int
    gid: int
    groups: list[int]


def find_user(name: str) -> JobUser:
    """Return a user by its name; raises NoSuchUse for one that jobs cannot run under."""
    if os.geteuid() != 0:
        raise NoSuchUse(f"only a worker of root can run jobs as {name!r}")
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise NoSuchUse(f"this machine has no user {name!r}") from error
    if entry.pw_uid == 0:
        raise NoSuchUse(f"{name!r} is root, whom nothing is kept from")
    return JobUser(entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid))


def open_way(data: Path, user: JobUser) -> None:
    """Let a user through to a worker's folder; raises NoSuchUse where that is not ours to do."""
    for each in (data, *data.parents):
        found = each.stat()
        if found.st_mode & stat.S_IXOTH or (found.st_gid in user.groups and found.st_mode & 0o010):
            continue
        is_private = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == private.FOLDER
        if not is_private or len(each.parts) <= _TOP or each == Path.home():
            raise NoSuchUse(f"user {user.uid} has no way through {each} to its jobs' folders")
        _let_through(each, user)


def give_folder(folder: Path, work: Path, user: JobUser) -> None:
    """Give a job's folder, with what was fetched into it, to a user; no process of it runs yet.

    What is in it comes first: another job of the same user may know the name, and must not get in
    to lay a link where something is still to be given.
    """
    for root, folders, files in os.walk(work):
        for name in (*folders, *files):
            os.chown(f"{root}/{name}", user.uid, user.gid, follow_symlinks=False)
    os.chown(work, user.uid, user.gid, follow_symlinks=False)
    _let_through(folder, user)


def renew_folder(folder: Path, work: Path) -> None:
    """Empty a job's folder that was given to a user though the job never began.

    Its worker was killed in between. Another job of the user may have got in since, and nothing is
    written by root where somebody else has put links.
    """
    if work.stat().st_uid != os.geteuid():
        import shutil  # wardens import this module, and have no use for what that loads

        folder.chmod(private.FOLDER)
        shutil.rmtree(work)
        work.mkdir(mode=private.FOLDER)


def take_folder(folder: Path, work: Path) -> None:
    """Take a job's folder back once its processes have ended: what is in it is then kept as it is.

    Another job of the same user that knows the name could change an output while it is read.
    """
    with suppress(FileNotFoundError):
        folder.chmod(private.FOLDER)
        os.chown(work, os.geteuid(), -1, follow_symlinks=False)
        work.chmod(private.FOLDER)


def _let_through(folder: Path, user: JobUser) -> None:
    os.chown(folder, -1, user.gid)
    folder.chmod(private.GIVEN_FOLDER)


@contextmanager
def real_ids_of(user: JobUser | None) -> Iterator[None]:
    """Have the real ids of a user, which a process that is spawned with `resetids` then has.

    The effective ones stay the warden's. Until this ends the user may signal it: do nothing else.
    """
    if user is None:
        yield
        return
    kept = os.getgroups()
    uid, gid = os.getuid(), os.getgid()
    os.setgroups(user.groups)
    os.setresgid(user.gid, -1, -1)
    os.setresuid(user.uid, -1, -1)
    try:
        yield
    finally:
        os.setresuid(uid, -1, -1)
        os.setresgid(gid, -1, -1)
        os.setgroups(kept)
