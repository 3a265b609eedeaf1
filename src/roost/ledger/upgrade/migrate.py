"""The schema's history, by Alembic, run when a store opens.

The revisions are in migrations/versions. An advisory lock (or, with SQLite, the file's lock) keeps
two processes that start together from running them twice. A process runs them once for all new
SQLite files: the second gets what the first led to as one script. A schema that this release does
not know, and a database that holds something else, are refused before anything is changed. A
ledger that is up to date is opened without Alembic, which takes a tenth of a second to import.
"""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, create_engine, inspect, text

from roost.base.errors import Conflict

if TYPE_CHECKING:
    from alembic.config import Config

#: What a process locks that opens a PostgreSQL ledger: any number that no other program locks.
OPENERS = 7_270_013
#: How roost numbers its revisions; other programs that use Alembic have theirs.
_REVISION = re.compile(r"\d{4}")
_SCRIPTS = Path(__file__).parents[1] / "migrations"


def configuration() -> "Config":
    """Return Alembic's configuration; there is no ini file."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "os")
    return config


def upgrade(connection: Connection) -> None:
    """Bring the schema up to date."""
    if connection.dialect.name == "postgresql":
        hold_openers(connection)
    else:
        file = connection.connection.driver_connection
        assert isinstance(file, sqlite3.Connection)
        if file.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
            file.executescript(_finished())
            return
        if not file.in_transaction:
            file.execute("BEGIN IMMEDIATE")  # all revisions or none, and one fsync
    if _checked_revision(connection) != max(_revisions()):
        _run_revisions(connection)
    if connection.in_transaction():
        connection.commit()


def hold_openers(connection: Connection) -> None:
    """Keep every process waiting that opens this PostgreSQL ledger, until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": OPENERS})


def upgrade_within(connection: Connection) -> None:
    """Bring a PostgreSQL ledger's schema up to date in a transaction that goes on after it."""
    found = _checked_revision(connection)
    if found is None:
        raise Conflict("the database is no ledger of roost: it has no tables")
    if found != max(_revisions()):
        _run_revisions(connection)


def _checked_revision(connection: Connection) -> str | None:
    """Return a ledger's revision; refuse what is none, and a schema of a later release."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    found = None
    if "alembic_version" in tables:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found is None or _REVISION.fullmatch(found) is None:
        raise _no_ledger(tables)
    known = _revisions()
    if found not in known:
        raise Conflict(
            f"the ledger has schema {found}, and this roost knows none after {max(known)}: a later "
            "release has migrated it",
            hint="Maybe start that release, or restore a backup of before its migration.",
            schema=found,
        )
    return str(found)


@cache
def _revisions() -> frozenset[str]:
    """Return the revisions that this release knows: the numbers its scripts begin with."""
    return frozenset(path.name[:4] for path in (_SCRIPTS / "versions").glob("[0-9]*.py"))


def refuse_foreign_file(path: Path) -> None:
    """Refuse a SQLite file of another program while not even its journal mode is changed."""
    if not path.is_file() or not path.stat().st_size:
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        found = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    tables = [name for (name,) in found]
    if tables and "alembic_version" not in tables:
        raise _no_ledger(tables)


def _no_ledger(tables: Iterable[str]) -> Conflict:
    some = ", ".join(sorted(tables)[:5])
    return Conflict(
        f"the database is no ledger of roost: it has other tables ({some})",
        hint="Maybe name an empty database or another file with --database or --data.",
    )


def _run_revisions(connection: Connection) -> None:
    from alembic import command

    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@cache
def _finished() -> str:
    """Return the SQL script of a new SQLite database at the newest revision."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        _run_revisions(connection)
        connection.commit()
        memory = connection.connection.driver_connection
        assert isinstance(memory, sqlite3.Connection)
        script = "\n".join(memory.iterdump())
    engine.dispose()
    return script
