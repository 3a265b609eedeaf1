"""The schema's history, by Alembic, run when a store opens.

The revisions are in migrations/versions. An advisory lock (or, with SQLite, the file's lock) keeps
two processes that start together from running them twice.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

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
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.in_transaction():
        connection.commit()
