"""Series in a SQLite file of their own, beside the ledger's: WAL, synchronous=FULL, one thread.

The file is opened by whoever first needs it and opened again after any failure, so a process starts
and runs without it. `inline` does everything in the caller's thread, for virtual time.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from roost.base.errors import SeriesUnavailable
from roost.base.private import make_file, make_folder, tighten
from roost.model.series import Kind, Subject
from roost.series.batches import Batch
from roost.series.shelf import SCHEMA, Chunk, Filed

T = TypeVar("T")

#: What says that a file is a store of series ("rser"), in SQLite's header.
_APPLICATION = 0x72736572
_TABLES = """
CREATE TABLE subjects (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (kind, name)
);
CREATE TABLE batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT, shard INTEGER NOT NULL, put_ms INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX batches_shard ON batches (shard, id);
CREATE TABLE chunks (
    subject INTEGER NOT NULL, resolution TEXT NOT NULL, begin_ms INTEGER NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (subject, resolution, begin_ms)
);
CREATE INDEX chunks_age ON chunks (resolution, begin_ms);
"""
_UPSERT = (
    "INSERT INTO chunks VALUES (?, ?, ?, ?)"
    " ON CONFLICT (subject, resolution, begin_ms) DO UPDATE SET data = excluded.data"
)
_SIDES = ("", "-wal", "-shm", "-journal")


class SqliteShelf:
    """Batches and chunks in one SQLite file, which this process alone uses."""

    def __init__(self, path: Path | None, *, inline: bool = False) -> None:
        self.inline = inline
        self._path = path  # None: in memory
        self._connection: sqlite3.Connection | None = None
        self.opened = 0
        self._file: tuple[int, int] | None = None  # device and inode
        self._thread = None if inline else ThreadPoolExecutor(1, "roost-series")
        if path is not None:
            _close_to_others(path)  # now: it may be long before anybody needs the file

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._thread is None:
            return self._try(work)
        try:
            running = asyncio.get_running_loop().run_in_executor(self._thread, self._try, work)
        except RuntimeError as error:
            raise SeriesUnavailable("the store of series is closed") from error
        return await running

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._open()
            with connection:  # a transaction: committed, or rolled back when it raises
                connection.execute("BEGIN")
                return work(connection)
        except (sqlite3.Error, OSError) as error:
            self._shut()
            raise SeriesUnavailable(f"{self._path or 'memory'}: {error}") from error

    # The file

    def _open(self) -> sqlite3.Connection:
        """Return the connection; a file that is gone or another one now is opened anew."""
        if self._connection is not None and (self._path is None or self._is_same(self._path)):
            return self._connection
        self._shut()
        if self._path is not None:
            make_folder(self._path.parent)
            if not self._path.exists():
                make_file(self._path)
            _close_to_others(self._path)
        connection = sqlite3.connect(
            self._path or ":memory:", isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        if self._path is not None:
            found = self._path.stat()
            self._file = found.st_dev, found.st_ino
        self._connection, self.opened = connection, self.opened + 1
        return connection

    def _is_same(self, path: Path) -> bool:
        try:
            found = path.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")
        schema = connection.execute("PRAGMA user_version").fetchone()[0]
        if schema > SCHEMA:
            raise SeriesUnavailable(f"{self._path} is of a later release: schema {schema}")
        if schema == 0:
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables:
                raise SeriesUnavailable(f"{self._path} is a database of something else")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
            connection.execute("COMMIT")

    def _shut(self) -> None:
        if self._path is None and self._connection is not None:
            return  # what is in memory would be lost
        connection, self._connection, self._file = self._connection, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    # Subjects

    async def number(self, subjects: Sequence[Subject]) -> dict[Subject, int]:
        """Return the numbers of subjects; those that are new get one."""

        def work(connection: sqlite3.Connection) -> dict[Subject, int]:
            connection.executemany(
                "INSERT INTO subjects (kind, name) VALUES (?, ?) ON CONFLICT DO NOTHING", subjects
            )
            found = {}
            for subject in subjects:
                found[subject] = connection.execute(
                    "SELECT number FROM subjects WHERE kind = ? AND name = ?", subject
                ).fetchone()[0]
            return found

        return await self._do(work)

    async def find(self, subject: Subject) -> int | None:
        """Return the number of a subject, if it has one."""
        query = "SELECT number FROM subjects WHERE kind = ? AND name = ?"
        row = await self._do(lambda connection: connection.execute(query, subject).fetchone())
        return row[0] if row is not None else None

    async def names(self, kind: Kind) -> dict[int, str]:
        """Return the names of all subjects of a kind by their numbers."""
        query = "SELECT number, name FROM subjects WHERE kind = ?"
        return await self._do(lambda connection: dict(connection.execute(query, (kind,))))

    # Batches

    async def append(self, batches: Sequence[Batch], now_ms: int, opened: int) -> None:
        """Keep batches, all or none; they are durable when this returns."""
        rows = [(batch.shard, now_ms, batch.data) for batch in batches]
        insert = "INSERT INTO batches (shard, put_ms, data) VALUES (?, ?, ?)"

        def work(connection: sqlite3.Connection) -> None:
            if opened != self.opened:
                raise SeriesUnavailable(f"{self._path} was opened again")
            connection.executemany(insert, rows)

        await self._do(work)

    async def view(
        self, subject: int, shard: int, resolution: str, first_ms: int, until_ms: int
    ) -> tuple[list[bytes], list[bytes]]:
        """Return chunks that begin in a span, and the pending batches of the shard; one view."""

        def work(connection: sqlite3.Connection) -> tuple[list[bytes], list[bytes]]:
            chunks = connection.execute(
                "SELECT data FROM chunks WHERE subject = ? AND resolution = ?"
                " AND begin_ms >= ? AND begin_ms < ? ORDER BY begin_ms",
                (subject, resolution, first_ms, until_ms),
            )
            found = [row[0] for row in chunks]
            pending = connection.execute(
                "SELECT data FROM batches WHERE shard = ? ORDER BY id", (shard,)
            )
            return found, [row[0] for row in pending]

        return await self._do(work)

    async def last_chunk(self, subject: int, resolution: str) -> bytes | None:
        """Return the newest chunk of a subject."""
        query = (
            "SELECT data FROM chunks WHERE subject = ? AND resolution = ?"
            " ORDER BY begin_ms DESC LIMIT 1"
        )
        row = await self._do(lambda c: c.execute(query, (subject, resolution)).fetchone())
        return row[0] if row is not None else None

    async def recent(self, shards: range, since_ms: int) -> list[bytes]:
        """Return the batches of some shards that were put since then, in their order."""
        query = (
            "SELECT data FROM batches WHERE shard >= ? AND shard < ? AND put_ms >= ? ORDER BY id"
        )
        asked = (shards.start, shards.stop, since_ms)
        rows = await self._do(lambda connection: connection.execute(query, asked).fetchall())
        return [row[0] for row in rows]

    async def due(self, put_before_ms: int, put_after_ms: int) -> int | None:
        """Return the shard whose oldest batch is the oldest, if it was put before or after then."""
        query = "SELECT shard, put_ms FROM batches ORDER BY id LIMIT 1"
        row = await self._do(lambda connection: connection.execute(query).fetchone())
        if row is None or put_before_ms <= row[1] <= put_after_ms:
            return None
        return int(row[0])

    async def pending(self, shard: int, put_before_ms: int, put_after_ms: int, most: int) -> Filed:
        """Return the oldest batches of a shard that were put before or after then."""
        query = (
            "SELECT id, data FROM batches WHERE shard = ? AND (put_ms < ? OR put_ms > ?)"
            " ORDER BY id LIMIT ?"
        )
        asked = (shard, put_before_ms, put_after_ms, most)
        rows = await self._do(lambda connection: connection.execute(query, asked).fetchall())
        return Filed([row[0] for row in rows], [row[1] for row in rows])

    # Chunks

    async def chunks(self, subject: int, spans: Sequence[tuple[str, int, int]]) -> list[Chunk]:
        """Return chunks of a subject that begin in spans, each of a resolution."""

        def work(connection: sqlite3.Connection) -> list[Chunk]:
            return [
                Chunk(*row)
                for resolution, first_ms, until_ms in spans
                for row in connection.execute(
                    "SELECT subject, resolution, begin_ms, data FROM chunks WHERE subject = ?"
                    " AND resolution = ? AND begin_ms >= ? AND begin_ms < ? ORDER BY begin_ms",
                    (subject, resolution, first_ms, until_ms),
                )
            ]

        return await self._do(work)

    async def file(self, ids: Sequence[int], chunks: Sequence[Chunk]) -> bool:
        """Put chunks in the place of batches; False, and nothing done, if one of those is gone."""

        def work(connection: sqlite3.Connection) -> bool:
            gone = connection.executemany(
                "DELETE FROM batches WHERE id = ?", [(each,) for each in ids]
            ).rowcount
            if gone != len(ids):
                connection.execute("ROLLBACK")
                return False
            connection.executemany(_UPSERT, chunks)
            return True

        return await self._do(work)

    async def drop(self, resolution: str, before_ms: int, most: int) -> int:
        """Delete chunks that begin before a moment, so many at most; return how many."""

        def work(connection: sqlite3.Connection) -> int:
            query = (
                "SELECT subject, resolution, begin_ms FROM chunks WHERE resolution = ?"
                " AND begin_ms < ? ORDER BY begin_ms LIMIT ?"
            )
            old = connection.execute(query, (resolution, before_ms, most)).fetchall()
            connection.executemany(
                "DELETE FROM chunks WHERE subject = ? AND resolution = ? AND begin_ms = ?", old
            )
            return len(old)

        return await self._do(work)

    async def check(self) -> list[str]:
        """Return what is wrong with the database, in words."""

        # Not every page: that would take minutes, and readings would wait.
        def work(connection: sqlite3.Connection) -> list[str]:
            for table in ("subjects", "batches", "chunks"):
                connection.execute(f"SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1").fetchall()
            return []

        return await self._do(work)

    async def close(self) -> None:
        """Close the database."""
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
            self._thread.shutdown(wait=False)
        else:
            self._end()

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _close_to_others(path: Path) -> None:
    """Make a file that is there, and what is beside it, private."""
    tighten(path.with_name(path.name + side) for side in _SIDES)
