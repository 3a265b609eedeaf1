"""Series in PostgreSQL: a schema of their own in the ledger's database, which planes share.

Connections are of a pool of its own, so that nobody who creates a VM waits for one. The pool is
opened by whoever first needs it, and opened again after the database was away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from roost.base.errors import SeriesUnavailable
from roost.model.series import Kind, Subject
from roost.series.batches import Batch
from roost.series.shelf import SCHEMA, Chunk, Filed

T = TypeVar("T")

_SCHEMA = "roost_series"
#: A number that only processes which make this schema lock.
_LOCK = 0x72736572
_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {_SCHEMA};
CREATE TABLE {_SCHEMA}.about (schema integer NOT NULL);
CREATE TABLE {_SCHEMA}.subjects (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, name text NOT NULL,
    UNIQUE (kind, name)
);
CREATE TABLE {_SCHEMA}.batches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, shard integer NOT NULL,
    put_ms bigint NOT NULL, data bytea NOT NULL
);
CREATE INDEX batches_shard ON {_SCHEMA}.batches (shard, id);
CREATE TABLE {_SCHEMA}.chunks (
    subject bigint NOT NULL, resolution text NOT NULL, begin_ms bigint NOT NULL,
    data bytea NOT NULL, PRIMARY KEY (subject, resolution, begin_ms)
);
CREATE INDEX chunks_age ON {_SCHEMA}.chunks (resolution, begin_ms);
ALTER TABLE {_SCHEMA}.batches ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE {_SCHEMA}.chunks ALTER COLUMN data SET STORAGE EXTERNAL;
INSERT INTO {_SCHEMA}.about VALUES ({SCHEMA});
"""
_FAILURES = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
#: How long one question may take; nobody waits for series.
_PATIENCE_S = 30.0


class PostgresShelf:
    """Batches and chunks in a PostgreSQL database that several planes share."""

    inline = False

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._closed = False
        self.opened = 0

    async def _do(self, work: Callable[[Any], Awaitable[T]], *, frozen: bool = False) -> T:
        try:
            pool = await self._open()
            async with pool.acquire(timeout=_PATIENCE_S) as connection:
                level = "repeatable_read" if frozen else "read_committed"
                async with connection.transaction(isolation=level):
                    return await work(connection)
        except _FAILURES as error:
            if isinstance(error, asyncpg.UndefinedTableError | asyncpg.InvalidSchemaNameError):
                self._forget()  # the schema was dropped; it is made anew next time
            said = str(error).strip() or type(error).__name__
            raise SeriesUnavailable(f"schema {_SCHEMA} of the database: {said}") from error

    async def _open(self) -> Any:
        if self._closed:
            raise SeriesUnavailable("the store of series is closed")
        async with self._opening:
            if self._pool is None:
                pool = await asyncpg.create_pool(
                    self._dsn, min_size=0, max_size=2, command_timeout=_PATIENCE_S
                )
                try:
                    async with pool.acquire(timeout=_PATIENCE_S) as connection:
                        await _prepare(connection)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool, self.opened = pool, self.opened + 1
        return self._pool

    def _forget(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    # Subjects

    async def number(self, subjects: Sequence[Subject]) -> dict[Subject, int]:
        """Return the numbers of subjects; those that are new get one."""
        ordered = sorted(subjects)  # everybody locks in this order
        kinds, names = [each.kind for each in ordered], [each.name for each in ordered]

        async def work(connection: Any) -> dict[Subject, int]:
            await connection.execute(
                f"INSERT INTO {_SCHEMA}.subjects (kind, name)"
                " SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING",
                kinds,
                names,
            )
            rows = await connection.fetch(
                f"SELECT kind, name, number FROM {_SCHEMA}.subjects"
                " JOIN unnest($1::text[], $2::text[]) AS asked (kind, name) USING (kind, name)",
                kinds,
                names,
            )
            return {Subject(row["kind"], row["name"]): row["number"] for row in rows}

        return await self._do(work)

    async def find(self, subject: Subject) -> int | None:
        """Return the number of a subject, if it has one."""
        query = f"SELECT number FROM {_SCHEMA}.subjects WHERE kind = $1 AND name = $2"
        found: int | None = await self._do(lambda c: c.fetchval(query, *subject))
        return found

    async def names(self, kind: Kind) -> dict[int, str]:
        """Return the names of all subjects of a kind by their numbers."""
        query = f"SELECT number, name FROM {_SCHEMA}.subjects WHERE kind = $1"
        rows = await self._do(lambda connection: connection.fetch(query, kind))
        return {row["number"]: row["name"] for row in rows}

    # Batches

    async def append(self, batches: Sequence[Batch], now_ms: int, opened: int) -> None:
        """Keep batches, all or none; they are durable when this returns."""
        rows = [(batch.shard, now_ms, batch.data) for batch in batches]
        insert = f"INSERT INTO {_SCHEMA}.batches (shard, put_ms, data) VALUES ($1, $2, $3)"

        async def work(connection: Any) -> None:
            if opened != self.opened:
                raise SeriesUnavailable(f"schema {_SCHEMA} was opened again")
            await connection.executemany(insert, rows)

        await self._do(work)

    async def view(
        self, subject: int, shard: int, resolution: str, first_ms: int, until_ms: int
    ) -> tuple[list[bytes], list[bytes]]:
        """Return chunks that begin in a span, and the pending batches of the shard; one view."""

        async def work(connection: Any) -> tuple[list[bytes], list[bytes]]:
            chunks = await connection.fetch(
                f"SELECT data FROM {_SCHEMA}.chunks WHERE subject = $1 AND resolution = $2"
                " AND begin_ms >= $3 AND begin_ms < $4 ORDER BY begin_ms",
                subject,
                resolution,
                first_ms,
                until_ms,
            )
            pending = await connection.fetch(
                f"SELECT data FROM {_SCHEMA}.batches WHERE shard = $1 ORDER BY id", shard
            )
            return [row["data"] for row in chunks], [row["data"] for row in pending]

        return await self._do(work, frozen=True)

    async def last_chunk(self, subject: int, resolution: str) -> bytes | None:
        """Return the newest chunk of a subject."""
        query = (
            f"SELECT data FROM {_SCHEMA}.chunks WHERE subject = $1 AND resolution = $2"
            " ORDER BY begin_ms DESC LIMIT 1"
        )
        found: bytes | None = await self._do(lambda c: c.fetchval(query, subject, resolution))
        return found

    async def recent(self, shards: range, since_ms: int) -> list[bytes]:
        """Return the batches of some shards that were put since then, in their order."""
        query = (
            f"SELECT data FROM {_SCHEMA}.batches WHERE shard >= $1 AND shard < $2"
            " AND put_ms >= $3 ORDER BY id"
        )
        rows = await self._do(lambda c: c.fetch(query, shards.start, shards.stop, since_ms))
        return [row["data"] for row in rows]

    async def due(self, put_before_ms: int, put_after_ms: int) -> int | None:
        """Return the shard whose oldest batch is the oldest, if it was put before or after then."""
        query = f"SELECT shard, put_ms FROM {_SCHEMA}.batches ORDER BY id LIMIT 1"
        row = await self._do(lambda connection: connection.fetchrow(query))
        if row is None or put_before_ms <= row["put_ms"] <= put_after_ms:
            return None
        return int(row["shard"])

    async def pending(self, shard: int, put_before_ms: int, put_after_ms: int, most: int) -> Filed:
        """Return the oldest batches of a shard that were put before or after then."""
        query = (
            f"SELECT id, data FROM {_SCHEMA}.batches WHERE shard = $1"
            " AND (put_ms < $2 OR put_ms > $3) ORDER BY id LIMIT $4"
        )
        rows = await self._do(lambda c: c.fetch(query, shard, put_before_ms, put_after_ms, most))
        return Filed([row["id"] for row in rows], [row["data"] for row in rows])

    # Chunks

    async def chunks(self, subject: int, spans: Sequence[tuple[str, int, int]]) -> list[Chunk]:
        """Return chunks of a subject that begin in spans, each of a resolution."""
        query = (
            f"SELECT subject, resolution, begin_ms, data FROM {_SCHEMA}.chunks"
            " WHERE subject = $1 AND resolution = $2 AND begin_ms >= $3 AND begin_ms < $4"
            " ORDER BY begin_ms"
        )

        async def work(connection: Any) -> list[Chunk]:
            found = []
            for resolution, first_ms, until_ms in spans:
                rows = await connection.fetch(query, subject, resolution, first_ms, until_ms)
                found += [Chunk(*row) for row in rows]
            return found

        return await self._do(work, frozen=True)

    async def file(self, ids: Sequence[int], chunks: Sequence[Chunk]) -> bool:
        """Put chunks in the place of batches; False, and nothing done, if one of those is gone."""

        async def work(connection: Any) -> bool:
            gone = await connection.fetchval(
                f"WITH gone AS (DELETE FROM {_SCHEMA}.batches WHERE id = ANY($1::bigint[])"
                " RETURNING 1) SELECT count(*) FROM gone",
                list(ids),
            )
            if gone != len(ids):
                raise _Gone
            await connection.executemany(
                f"INSERT INTO {_SCHEMA}.chunks VALUES ($1, $2, $3, $4)"
                " ON CONFLICT (subject, resolution, begin_ms) DO UPDATE SET data = excluded.data",
                chunks,
            )
            return True

        try:
            return await self._do(work)
        except _Gone:
            return False

    async def drop(self, resolution: str, before_ms: int, most: int) -> int:
        """Delete chunks that begin before a moment, so many at most; return how many."""
        query = (
            f"WITH gone AS (DELETE FROM {_SCHEMA}.chunks WHERE (subject, resolution, begin_ms) IN"
            f" (SELECT subject, resolution, begin_ms FROM {_SCHEMA}.chunks WHERE resolution = $1"
            " AND begin_ms < $2 ORDER BY begin_ms LIMIT $3) RETURNING 1) SELECT count(*) FROM gone"
        )
        return int(await self._do(lambda c: c.fetchval(query, resolution, before_ms, most)))

    async def check(self) -> list[str]:
        """Return what is wrong with the database, in words: that it answers is enough here."""
        await self._do(lambda c: c.fetchval(f"SELECT count(*) FROM {_SCHEMA}.about"))
        return []

    async def close(self) -> None:
        """Close the database."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(*_FAILURES):
                await pool.close()


class _Gone(Exception):
    """Another process has filed some of these batches."""


async def _prepare(connection: Any) -> None:
    """Make the schema if it is not there; refuse one of a later release."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        there = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{_SCHEMA}.about")
        if not there:
            await connection.execute(_TABLES)
        schema = await connection.fetchval(f"SELECT schema FROM {_SCHEMA}.about")
        if schema is None or schema > SCHEMA:
            raise SeriesUnavailable(f"schema {_SCHEMA} is of a later release: {schema}")
