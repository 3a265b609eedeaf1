"""Open the ledger that a URL names."""

from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest
from roost.base.ids import IdSource
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.store import Store


async def open_store(url: str, clock: Clock, ids: IdSource) -> Store:
    """Open SQLite (sqlite:///PATH) or PostgreSQL (postgresql://...), schema brought up to date."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidRequest(
            f"{url!r} is no database URL",
            hint="Maybe sqlite:///roost.db or postgresql://user@host/roost.",
        ) from error
    if parsed.drivername == "sqlite" and parsed.database:
        return SqliteStore(Path(parsed.database), clock, ids)
    if parsed.drivername in ("postgresql", "postgres"):
        # Its driver takes a fifth of a second to import, and most processes have a file.
        from roost.ledger.postgres.store import PostgresStore

        return await PostgresStore.open(url, clock, ids)
    raise InvalidRequest(
        f"{url!r} names no database that roost knows",
        hint="Maybe sqlite:///roost.db or postgresql://user@host/roost.",
    )
