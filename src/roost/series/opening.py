"""Open the store of series that goes with a ledger: a file beside it, or a schema of its own."""

from pathlib import Path

from sqlalchemy import make_url

from roost.model.series import Kept
from roost.series.embedded import EmbeddedSeries
from roost.series.sqlite import SqliteShelf


def open_series(database: str, kept: Kept | None = None) -> EmbeddedSeries:
    """Return the store beside the ledger of this URL; nothing is opened until it is used."""
    parsed = make_url(database)
    if parsed.drivername == "sqlite" and parsed.database:
        return EmbeddedSeries(SqliteShelf(series_path(Path(parsed.database))), kept)
    # Its driver takes a fifth of a second to import, and most processes have a file.
    from roost.series.postgres import PostgresShelf

    dsn = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    return EmbeddedSeries(PostgresShelf(dsn), kept)


def series_path(ledger: Path) -> Path:
    """Return the file of series beside a ledger's: `roost-series.db` beside `roost.db`."""
    return ledger.with_name(f"{ledger.stem}-series{ledger.suffix}")


def memory_series(kept: Kept | None = None) -> EmbeddedSeries:
    """Return a store in memory, in the caller's thread: for simulated worlds."""
    return EmbeddedSeries(SqliteShelf(None, inline=True), kept)
