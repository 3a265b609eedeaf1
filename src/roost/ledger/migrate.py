"""The schema's history, by Alembic, run when a store opens.

The revisions are in migrations/versions. An advisory lock (or, with SQLite, the file's lock) keeps
two processes that start together from running them twice. A process runs them once for all new
SQLite files: the second gets what the first led to as one script.
"""

import sqlite3
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine, text

#: Any number that no other program locks on the same database.
_ADVISORY = 7_270_013


def configuration() -> Config:
    """Return Alembic's configuration; there is no ini file."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    return config


def upgrade(connection: Connection) -> None:
    """Bring the schema up to date."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY})
    else:
        file = connection.connection.driver_connection
        assert isinstance(file, sqlite3.Connection)
        if file.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
            file.executescript(_finished())
            return
        if not file.in_transaction:
            file.execute("BEGIN IMMEDIATE")  # all revisions or none, and one fsync
    _run_revisions(connection)


def _run_revisions(connection: Connection) -> None:
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.in_transaction():
        connection.commit()


@cache
def _finished() -> str:
    """Return the script of an empty SQLite database with all revisions: one transaction."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        _run_revisions(connection)
        memory = connection.connection.driver_connection
        assert isinstance(memory, sqlite3.Connection)
        script = "\n".join(memory.iterdump())
    engine.dispose()
    return script
