"""Copies of a ledger in PostgreSQL: what `pg_dump` writes, put back in one transaction.

    backup    a read transaction that `pg_dump` and the counting share -> a file, read back whole
              by `pg_restore` -> renamed; the ledger is not migrated
    restore   one transaction: openers kept waiting -> nobody else is connected -> old tables
              dropped -> the script of `pg_restore` -> migrated, every VM in doubt -> committed

So a restore has happened as a whole or not at all, and a server that starts meanwhile waits for it.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from roost.app.dumpscripts import run_script
from roost.app.filecopies import beside, sync
from roost.app.held import Held, held_of, questions
from roost.base.clock import RealClock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.base.ids import IdSource
from roost.base.private import plain_environment
from roost.control.memory.restore_detect import doubt_all
from roost.ledger.upgrade.migrate import OPENERS, hold_openers, upgrade_within
from roost.ledger.upgrade.older import may_run_beside, write_for_older
from roost.ledger.writes.transaction import Tx, append_events

_SERIES_SCHEMA = "roost_series"
_FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
#: How often, and after what time, others are looked for before they are in the way.
_LOOKS, _BETWEEN_LOOKS_S = 8, 0.1
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
#: Sessions of others. Whoever may not look into another role's session sees no type of it; what the
#: server does by itself has no user. Whoever waits for the openers' lock has read nothing yet.
_OTHERS = text(f"""
SELECT count(*) FROM pg_stat_activity AS session
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL
AND coalesce(backend_type, 'client backend') = 'client backend'
AND NOT EXISTS (SELECT FROM pg_locks AS lock WHERE lock.pid = session.pid AND NOT granted
                AND locktype = 'advisory' AND classid = 0 AND objid = {OPENERS})
""")
#: What roost makes in its schema; what belongs to an extension is none of it.
_OLD_TABLES = text("""
SELECT string_agg(format('public.%I', relname), ', ') FROM pg_class AS it
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = it.oid AND deptype = 'e')
""")
_OLD_FUNCTIONS = text("""
SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc
WHERE pronamespace = 'public'::regnamespace AND starts_with(proname, 'roost_')
""")


async def dump(url: URL, target: Path) -> Held:
    """Copy a ledger that may be in use to a new file; what is counted is what is in the file."""
    async with (
        _connected(url) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        tables = {row[0] for row in await connection.fetch(_TABLES)}
        if "alembic_version" not in tables:
            raise NotFound(
                f"there is no ledger at {_shown(url)}",
                hint="Maybe name another database with --database URL.",
            )
        answers = {
            name: await connection.fetchval(question)
            for name, question in questions(tables).items()
        }
        snapshot = await connection.fetchval("SELECT pg_export_snapshot()")
        with beside(target) as made:
            arguments = (
                "--format=custom", f"--exclude-schema={_SERIES_SCHEMA}",
                f"--snapshot={snapshot}", f"--file={made}",
            )  # fmt: skip
            await asyncio.to_thread(_pg_dump, url, *arguments)
            await asyncio.to_thread(_read_back, made)
            sync(made)
            made.rename(target)
    sync(target.parent)
    return held_of(answers)


async def put_dump(source: Path, url: URL, note: str, *, replace: bool) -> Held:
    """Put a copy in a ledger's place, every VM in doubt, in one transaction."""
    told = False  # to commit
    engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
    try:
        async with engine.connect() as connection:  # rolls back unless it is told to commit
            held = await _put(connection, source, url, note, replace=replace)
            told = True
            await connection.commit()
            return held
    except (DBAPIError, *_FAILURES) as error:
        what = "may be restored, or be" if told else "was not restored, and is"
        kind = Unavailable if told or _may_pass(error) else Conflict
        raise kind(f"{_shown(url)} {what} as before: {_said(error)}") from error
    finally:
        await engine.dispose()


async def _put(
    connection: AsyncConnection, source: Path, url: URL, note: str, *, replace: bool
) -> Held:
    await connection.run_sync(hold_openers)
    await _refuse_used(connection, url)
    tables = set((await connection.execute(text(_TABLES))).scalars())
    if tables and not replace:
        raise Conflict(
            f"{_shown(url)} is not empty: it has {len(tables)} tables",
            hint="Maybe name an empty database, or --replace what is there.",
        )
    if tables and "alembic_version" not in tables:
        raise Conflict(
            f"{_shown(url)} is no ledger of roost, and is not replaced",
            hint="Maybe name an empty database.",
        )
    for kind, question in (("TABLE", _OLD_TABLES), ("FUNCTION", _OLD_FUNCTIONS)):
        if old := (await connection.execute(question)).scalar():
            await connection.execute(text(f"DROP {kind} {old}".replace(":", "\\:")))
    driver: Any = (await connection.get_raw_connection()).driver_connection
    # Nothing but the ledger: series that are there are newer, and whole.
    words = ("--file=-", "--schema=public", "--no-owner", "--no-privileges", str(source))
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [_program("pg_restore"), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, env=plain_environment(),
        )  # fmt: skip
        try:
            assert process.stdout is not None
            await run_script(process.stdout, driver)
            ended = await asyncio.to_thread(process.wait)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        said.seek(0)
        _refuse_failed("pg_restore", ended, said.read().decode(errors="replace"))
    await connection.execute(text("RESET ALL"))  # the script has no search path, for one
    held = await connection.run_sync(_migrate_and_doubt, note)
    await _refuse_used(connection, url)
    return held


def _migrate_and_doubt(connection: Connection, note: str) -> Held:
    upgrade_within(connection)
    tables = connection.execute(text(_TABLES)).scalars().all()
    held = held_of(
        {
            name: connection.execute(text(question)).scalar()
            for name, question in questions(tables).items()
        }
    )
    if held.hosts:
        clock = RealClock()
        tx = Tx(connection, "roost", clock.wall_ms(), IdSource(clock.wall_ms).new("tx"))
        doubt_all(tx, note)
        if may_run_beside(connection):
            write_for_older(connection, tx.events)
        append_events(connection, tx.events, tx.constraints)
    return held


async def _refuse_used(connection: AsyncConnection, url: URL) -> None:
    """Refuse a database that others stay connected to: one may just end, or just begin to wait."""
    for left in reversed(range(_LOOKS)):
        await connection.execute(text("SELECT pg_stat_clear_snapshot()"))
        others = (await connection.execute(_OTHERS)).scalar()
        if not others:
            return
        if left:
            await asyncio.sleep(_BETWEEN_LOOKS_S)
    raise Conflict(
        f"{others} others are connected to {_shown(url)}",
        hint="Maybe stop every control-plane process first.",
    )


@asynccontextmanager
async def _connected(url: URL) -> AsyncIterator[Any]:
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        connection = await asyncpg.connect(dsn)
        try:
            yield connection
        finally:
            await connection.close()
    except _FAILURES as error:
        raise Unavailable(f"{_shown(url)} cannot be read: {_said(error)}") from error


def _pg_dump(url: URL, *arguments: str) -> None:
    plain = url.set(drivername="postgresql", password=None)
    environment = plain_environment()
    password = url.password or os.environ.get("PGPASSWORD")
    if password:
        environment["PGPASSWORD"] = str(password)  # in no list of processes
    words = ("--no-password", f"--dbname={plain.render_as_string()}", *arguments)
    _run("pg_dump", environment, *words)


def _read_back(path: Path) -> None:
    """Read a dump to its end; its list alone would not tell that it was cut off."""
    _run("pg_restore", plain_environment(), "--file=/dev/null", str(path))


def _run(program: str, environment: dict[str, str], *words: str) -> None:
    done = subprocess.run(
        [_program(program), *words],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    _refuse_failed(program, done.returncode, done.stderr)


def _refuse_failed(program: str, ended: int, said: str) -> None:
    if ended:
        lines = said.strip().splitlines()
        raise Unavailable(f"{program} failed: {lines[0] if lines else ended}")


def _program(name: str) -> str:
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))[-1:]),
        None,
    )
    if found is None:
        raise NotFound(
            f"{name} is not installed here", hint="Maybe apt-get install postgresql-client."
        )
    return found


def _may_pass(error: BaseException) -> bool:
    """Say whether a failure is none of what is in the database, or of what may be done to it."""
    state = getattr(getattr(error, "orig", None) or error, "sqlstate", None)
    return state is None or state.startswith(("08", "40", "53", "57"))


def _said(error: BaseException) -> str:
    """Return what the server said, without what two drivers say around it."""
    own = getattr(error, "orig", None) or error
    return str(own.__cause__ or own).strip().partition("\n")[0] or type(error).__name__


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)
