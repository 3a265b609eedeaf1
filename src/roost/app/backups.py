"""Copies of a ledger, taken while it serves and put back while it does not.

    SQLite       the file, copied by SQLite itself in one read transaction
    PostgreSQL   what `pg_dump` writes, in its own format

A copy is whole or not there: it is written beside its place, looked at, then renamed. A ledger that
is put back is told so before any server starts on it: every VM is in doubt until hosts have said
what they have, and fencing from before the copy proves nothing (ADR-0051). Nothing is deleted: what
was in the place of a restored file is kept beside it.
"""

import asyncio
import dataclasses
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, func, make_url, select
from sqlalchemy.exc import ArgumentError

from roost.app.keys import fingerprints
from roost.app.options import KEY_NAME, ServeOptions
from roost.base.clock import RealClock
from roost.base.errors import Conflict, InvalidRequest, NotFound, Unavailable
from roost.base.ids import IdSource
from roost.base.private import FILE, make_folder, withdraw_process
from roost.control.memory.restore_detect import doubt_all
from roost.ledger.migrate import refuse_foreign_file
from roost.ledger.opening import open_store
from roost.ledger.tables import events, hosts, sealing_keys, vms
from roost.parts.sealing import KeyFile

_SQLITE, _POSTGRES = b"SQLite format 3\0", b"PGDMP"
#: Tables of a copy whose rows are counted, so that a person sees what it holds.
_COUNTED = ("hosts", "vms")
_SERIES_SCHEMA = "roost_series"


@dataclass(frozen=True, slots=True)
class Held:
    """What a copy, or a ledger that was put back, holds."""

    database: str
    file: str
    size_bytes: int
    schema: str
    hosts: int
    vms: int
    last_event: int
    key: str | None  # fingerprint of the key that seals its secrets
    key_is_here: bool = True
    kept: str | None = None  # where the file lies that was in its place


def backup(options: ServeOptions, target: Path) -> Held:
    """Write a copy of a ledger to a new file, whether a server uses it or not."""
    withdraw_process()
    if target.exists():
        raise Conflict(f"{str(target)!r} is there already", hint="Maybe name a new file.")
    url = _url(options)
    if url.drivername == "sqlite":
        source = Path(url.database or "")
        with _beside(target) as made:
            _copy_sqlite(source, made)
            held = _look(made)
            _sync(made)
            made.rename(target)
    else:
        with _beside(target) as made:
            arguments = ("--format=custom", f"--exclude-schema={_SERIES_SCHEMA}", f"--file={made}")
            _postgres("pg_dump", url, *arguments)
            held = asyncio.run(_count(_database(options)))
            _sync(made)
            made.rename(target)
    return _of(held, options, url, target)


def restore(options: ServeOptions, source: Path, *, replace: bool) -> Held:
    """Put a copy in the place of a ledger that no server uses, and put every VM in doubt."""
    withdraw_process()
    kind, url = _kind(source), _url(options)
    if (kind == "sqlite") != (url.drivername == "sqlite"):
        raise InvalidRequest(
            f"{str(source)!r} is a copy of {_KINDS[kind]}, and {_shown(url)} is none",
            hint="Maybe name the database with --database URL.",
        )
    kept = None
    if kind == "sqlite":
        kept = _put_file(source, Path(url.database or ""), replace=replace)
    else:
        _put_dump(source, url, replace=replace)
    held = asyncio.run(_doubt(_database(options), source))
    return _of(held, options, url, source, kept)


_KINDS = {"sqlite": "a SQLite database", "postgres": "a PostgreSQL database"}


def _kind(source: Path) -> str:
    try:
        with source.open("rb") as file:
            begins = file.read(len(_SQLITE))
    except OSError as error:
        raise NotFound(f"cannot read {str(source)!r}: {error.strerror}", file=str(source)) from None
    if begins == _SQLITE:
        return "sqlite"
    if begins.startswith(_POSTGRES):
        return "postgres"
    raise InvalidRequest(
        f"{str(source)!r} is no copy of a ledger",
        hint="Maybe name what `roost backup` wrote, a SQLite file or a pg_dump --format=custom.",
        file=str(source),
    )


# SQLite


def _copy_sqlite(source: Path, target: Path) -> None:
    if not source.is_file():
        raise NotFound(
            f"there is no ledger at {str(source)!r}",
            hint="Maybe name it with --data DIR or --database URL.",
            file=str(source),
        )
    refuse_foreign_file(source)
    try:
        uri = f"{source.absolute().as_uri()}?mode=rw"
        # In one step: a read transaction, which keeps no writer waiting.
        with (
            closing(sqlite3.connect(uri, uri=True, timeout=30)) as file,
            closing(sqlite3.connect(target)) as made,
        ):
            file.backup(made, pages=-1)
            made.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise Unavailable(f"{str(source)!r} cannot be copied: {error}") from error


def _look(path: Path) -> Held:
    """Read what a SQLite file holds; refuse one that is damaged or no ledger."""
    try:
        refuse_foreign_file(path)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            damage = [text for (text,) in file.execute("PRAGMA integrity_check(3)")]
            if damage != ["ok"]:
                raise Conflict(f"{str(path)!r} is damaged: {damage[0]}", file=str(path))

            def ask(question: str) -> list[tuple[object, ...]]:
                return file.execute(question).fetchall()

            counts = {
                name: int(str(ask(f"SELECT count(*) FROM {name}")[0][0])) for name in _COUNTED
            }
            last = ask("SELECT coalesce(max(seq), 0) FROM events")[0][0]
            tables = {name for (name,) in ask("SELECT name FROM sqlite_master")}
            keys = ask("SELECT fingerprint FROM sealing_keys") if "sealing_keys" in tables else []
            return Held(
                database="",
                file=str(path),
                size_bytes=path.stat().st_size,
                schema=str(ask("SELECT version_num FROM alembic_version")[0][0]),
                hosts=counts["hosts"],
                vms=counts["vms"],
                last_event=int(str(last)),
                key=str(keys[0][0]) if keys else None,
            )
    except (sqlite3.Error, IndexError) as error:
        raise Conflict(
            f"{str(path)!r} cannot be read as a ledger: {error}", file=str(path)
        ) from error


def _put_file(source: Path, target: Path, *, replace: bool) -> Path | None:
    """Put a copy in place; return where the file lies now that was there."""
    make_folder(target.parent)
    if target.is_file() and target.stat().st_size and not replace:
        raise Conflict(
            f"there is a ledger at {str(target)!r}",
            hint="Maybe --replace; it is kept beside the new one.",
            file=str(target),
        )
    with _beside(target) as made:
        shutil.copyfile(source, made)
        _look(made)
        _sync(made)
        kept = None
        with _only_user(target):
            if target.is_file():
                kept = _free_name(target)
                for end in ("", "-wal", "-shm"):
                    if (part := target.with_name(target.name + end)).exists():
                        part.rename(kept.with_name(kept.name + end))
            made.rename(target)
            _sync(target.parent)
        return kept


@contextmanager
def _only_user(path: Path) -> Iterator[None]:
    """Hold the lock of a ledger's file, which a server holds as long as it runs."""
    from roost.ledger.sqlite import lock_file

    held = lock_file(path)
    try:
        yield
    finally:
        held.close()


def _free_name(path: Path) -> Path:
    for number in range(1, 10_000):
        free = path.with_name(f"{path.name}.before-restore-{number}")
        if not free.exists():
            return free
    raise Conflict(f"too many files are kept beside {str(path)!r}; delete some of them")


# PostgreSQL


def _put_dump(source: Path, url: URL, *, replace: bool) -> None:
    asyncio.run(_refuse_used(url, replace))
    more = ("--clean", "--if-exists") if replace else ()
    _postgres(
        "pg_restore", url, "--single-transaction", "--exit-on-error", "--no-owner",
        "--no-privileges", *more, str(source),
    )  # fmt: skip


async def _refuse_used(url: URL, replace: bool) -> None:
    """Refuse a database that others are connected to, or that has tables."""
    import asyncpg

    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, asyncpg.PostgresError) as error:
        raise Unavailable(f"{_shown(url)} cannot be reached: {error}") from error
    try:
        others = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        tables = await connection.fetchval(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        )
    finally:
        await connection.close()
    if others:
        raise Conflict(
            f"{others} others are connected to {_shown(url)}",
            hint="Maybe stop every control-plane process first.",
        )
    if tables and not replace:
        raise Conflict(
            f"{_shown(url)} is not empty: it has {tables} tables",
            hint="Maybe name an empty database, or --replace what is there.",
        )


def _postgres(program: str, url: URL, *arguments: str) -> None:
    found = shutil.which(program) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))[-1:]),
        None,
    )
    if found is None:
        raise NotFound(
            f"{program} is not installed here", hint="Maybe apt-get install postgresql-client."
        )
    plain = url.set(drivername="postgresql", password=None)
    environment = dict(os.environ)
    if isinstance(url.password, str):
        environment["PGPASSWORD"] = url.password  # in no list of processes
    done = subprocess.run(
        [found, "--no-password", f"--dbname={plain.render_as_string()}", *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise Unavailable(f"{program} failed: {said[0] if said else done.returncode}")


# Both


async def _doubt(database: str, source: Path) -> Held:
    """Migrate a restored ledger to this release, and put every VM of it in doubt."""
    clock = RealClock()
    store = await open_store(database, clock, IdSource(clock.wall_ms))
    try:
        held = await store.read(_counts)
        if held.hosts:
            await store.write(lambda tx: doubt_all(tx, f"restored from {source.name}"), "roost")
        return held
    finally:
        await store.close()


async def _count(database: str) -> Held:
    clock = RealClock()
    store = await open_store(database, clock, IdSource(clock.wall_ms))
    try:
        return await store.read(_counts)
    finally:
        await store.close()


def _counts(connection: Connection) -> Held:
    from sqlalchemy import text

    def one(question: object) -> object:
        return connection.execute(question).scalar()  # type: ignore[call-overload]

    key = one(select(sealing_keys.c.fingerprint))
    return Held(
        database="",
        file="",
        size_bytes=0,
        schema=str(one(text("SELECT version_num FROM alembic_version"))),
        hosts=int(str(one(select(func.count()).select_from(hosts)))),
        vms=int(str(one(select(func.count()).select_from(vms)))),
        last_event=int(str(one(select(func.max(events.c.seq))) or 0)),
        key=None if key is None else str(key),
    )


def _has_key(options: ServeOptions, key: str | None) -> bool:
    """Say whether the key that a ledger is sealed with lies here."""
    if key is None:
        return True
    file = KeyFile(options.key_file or options.data / KEY_NAME)
    try:
        return key in fingerprints(file)
    except (InvalidRequest, NotFound):
        return False


def _database(options: ServeOptions) -> str:
    return options.database or f"sqlite:///{options.data / 'roost.db'}"


def _url(options: ServeOptions) -> URL:
    try:
        found = make_url(_database(options))
    except ArgumentError as error:
        raise InvalidRequest(
            f"{options.database!r} is no database URL",
            hint="Maybe sqlite:///roost.db or postgresql://user@host/roost.",
        ) from error
    if found.drivername not in ("sqlite", "postgresql", "postgres"):
        raise InvalidRequest(f"{_shown(found)} names no database that roost knows")
    return found


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _of(held: Held, options: ServeOptions, url: URL, file: Path, kept: Path | None = None) -> Held:
    """Return what a copy holds, with where it lies and whether its key is here."""
    return dataclasses.replace(
        held,
        database=_shown(url),
        file=str(file),
        size_bytes=file.stat().st_size,
        key_is_here=_has_key(options, held.key),
        kept=None if kept is None else str(kept),
    )


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
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
        made.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
