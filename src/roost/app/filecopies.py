"""Copies of a ledger in a SQLite file: made by SQLite itself, and put in a file's place.

    backup    one read transaction -> a file beside the copy's name, examined -> renamed
    restore   under the lock that a server holds: the copy -> a file beside the ledger's, migrated
              and every VM in doubt -> renamed over the ledger, which has a second name by then

So there is a whole ledger under its name at every moment, and never one that was put back and does
not say so.
"""

import asyncio
import dataclasses
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import text

from roost.app.held import SCHEMA, Held, held_of, questions
from roost.base.clock import RealClock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.base.ids import IdSource
from roost.base.private import FILE, make_folder
from roost.control.memory.restore_detect import doubt_all
from roost.ledger.sqlite.store import SqliteStore, lock_file
from roost.ledger.upgrade.migrate import refuse_foreign_file

#: What SQLite and a store put beside a file.
_BESIDE = ("-wal", "-shm", "-journal")


def copy_file(source: Path, target: Path) -> Held:
    """Copy a ledger that may be in use to a new file."""
    if not source.is_file():
        raise NotFound(
            f"there is no ledger at {str(source)!r}",
            hint="Maybe name it with --data DIR or --database URL.",
            file=str(source),
        )
    refuse_foreign_file(source)
    with beside(target) as made:
        try:
            _copy(f"{source.absolute().as_uri()}?mode=rw", made)
        except sqlite3.Error as error:
            raise Unavailable(f"{str(source)!r} cannot be copied: {error}") from error
        held = _examine(made, source)
        sync(made)
        made.rename(target)
    sync(target.parent)
    return held


def put_file(source: Path, target: Path, note: str, *, replace: bool) -> tuple[Held, Path | None]:
    """Put a copy in a ledger's place, every VM in doubt; return where the old file lies, too."""
    make_folder(target.parent)
    with _only_user(target), beside(target) as made:
        if target.is_file() and target.stat().st_size and not replace:
            raise Conflict(
                f"there is a ledger at {str(target)!r}",
                hint="Maybe --replace; it is kept beside the new one.",
                file=str(target),
            )
        try:
            _copy(_uri_of_copy(source), made)
        except sqlite3.Error as error:
            raise _unreadable(source, error) from error
        held = _examine(made, source)
        schema = asyncio.run(_doubt(made, held, note))
        sync(made)
        kept = _keep(target) if target.is_file() else None
        made.replace(target)
        sync(target.parent)
    return dataclasses.replace(held, schema=schema), kept


def _copy(uri: str, target: Path) -> None:
    # In one step: a read transaction, which keeps no writer waiting.
    with (
        closing(sqlite3.connect(uri, uri=True, timeout=30)) as file,
        closing(sqlite3.connect(target)) as made,
    ):
        file.backup(made, pages=-1)
        made.execute("PRAGMA journal_mode = DELETE")


def _uri_of_copy(source: Path) -> str:
    """Return how to read a copy: with what is committed beside it, and never written to.

    A file alone may lie where nothing can be written, not even the index of a WAL that is not
    there.
    """
    alone = not any(_named(source, end).exists() for end in _BESIDE)
    return f"{source.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"


def _examine(path: Path, source: Path) -> Held:
    """Read what the copy of a file holds; refuse one that is damaged or no ledger."""
    try:
        refuse_foreign_file(path)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            damage = [text for (text,) in file.execute("PRAGMA integrity_check(3)")]
            if damage != ["ok"]:
                raise Conflict(f"{str(source)!r} is damaged: {damage[0]}", file=str(source))
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
            answers = {
                name: (file.execute(question).fetchone() or (None,))[0]
                for name, question in questions(tables).items()
            }
            return held_of(answers)
    except sqlite3.Error as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Path, error: Exception) -> Conflict:
    return Conflict(f"{str(source)!r} cannot be read as a ledger: {error}", file=str(source))


async def _doubt(path: Path, held: Held, note: str) -> str:
    """Migrate a file to this release, put every VM of it in doubt, and return its schema."""
    clock = RealClock()
    store = SqliteStore(path, clock, IdSource(clock.wall_ms))
    try:
        if held.hosts:
            await store.write(lambda tx: doubt_all(tx, note), "roost")
        schema = await store.read(lambda c: str(c.execute(text(SCHEMA)).scalar()))
    finally:
        await store.close()
    if _is_filled(_named(path, "-wal")):  # closing the last connection has moved it into the file
        raise Unavailable(f"{str(path)!r} cannot be completed: its log is still beside it")
    return schema


def _keep(target: Path) -> Path:
    """Give the ledger that is there a second name, its log folded into it; return that name."""
    kept = _free_name(target)
    logs = [end for end in ("-wal", "-journal") if _is_filled(_named(target, end))]
    for end in logs:  # before SQLite opens the file: a log that it can make nothing of, it deletes
        _link(_named(target, end), _named(kept, end))
    folded = _fold(target)
    _link(target, kept)
    for end in _BESIDE:  # they must not be read as the new file's
        _named(target, end).unlink(missing_ok=True)
    if folded:
        for end in logs:
            _named(kept, end).unlink()
    return kept


def _fold(path: Path) -> bool:
    """Move what is committed in a file's log into it; False if SQLite found nothing to move."""
    try:
        with closing(sqlite3.connect(path, timeout=30)) as file:
            busy, size, moved = file.execute("PRAGMA wal_checkpoint").fetchone()
    except sqlite3.Error:
        return False
    return not busy and 0 < size == moved


def _link(path: Path, name: Path) -> None:
    """Give a file a second name; where a file system has no such thing, a copy."""
    try:
        name.hardlink_to(path)
    except OSError:
        shutil.copyfile(path, name)
        name.chmod(FILE)
        sync(name)


def _is_filled(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _named(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


@contextmanager
def _only_user(path: Path) -> Iterator[None]:
    """Hold the lock of a ledger's file, which a server holds as long as it runs."""
    held = lock_file(path)
    try:
        yield
    finally:
        held.close()


def _free_name(path: Path) -> Path:
    for number in range(1, 10_000):
        free = path.with_name(f"{path.name}.before-restore-{number}")
        if not any(_named(free, end).exists() for end in ("", *_BESIDE)):
            return free
    raise Conflict(f"too many files are kept beside {str(path)!r}; delete some of them")


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """Give a name beside a file's for what is not whole yet, and clear it away after a failure."""
    if not target.parent.is_dir():
        raise NotFound(f"there is no folder {str(target.parent)!r}", file=str(target.parent))
    made = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        made.touch(FILE, exist_ok=False)
        yield made
    except OSError as error:
        raise Unavailable(f"cannot write {str(target)!r}: {error.strerror}") from error
    finally:
        for end in ("", *_BESIDE, ".lock"):
            _named(made, end).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
