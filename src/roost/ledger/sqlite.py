"""The ledger in one SQLite file: WAL, synchronous=FULL, one writer, group commit.

Everything that waits to be written when the writer becomes free shares one transaction and one
fsync; each change stands on its own savepoint, so one that is refused does not hurt the others.
The writer is a thread in production; `inline` runs it in the caller's thread, for virtual time.
A lock file keeps a second process off the database.
"""

import asyncio
import fcntl
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar

from sqlalchemy import Connection, Dialect, Engine, QueuePool, create_engine, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.util import LRUCache

from roost.base.clock import Clock
from roost.base.errors import Conflict, InvariantBroken, RoostError
from roost.base.ids import IdSource
from roost.ledger.claims import NotAll, Outcome, Proposal, created_events, refuse_some
from roost.ledger.migrate import upgrade
from roost.ledger.rows import Event
from roost.ledger.sqliteclaims import SqliteClaims
from roost.ledger.sqliterows import insert_rows
from roost.ledger.store import DatabaseUnavailable, Listener
from roost.ledger.tables import events as events_table
from roost.ledger.transaction import Tx, number_events

T = TypeVar("T")

_EVENT = tuple(events_table.c.keys())

#: Statements that were compiled once serve every store of the process, like the dialect.
_compiled: LRUCache[Any, Any] = LRUCache(1000)

#: Changes that share a commit; more wait for the next, so that no caller waits for too many others.
MOST_TOGETHER = 512


@dataclass(slots=True)
class _Job:
    change: Callable[[Tx], Any]
    actor: str
    done: Callable[[Any, BaseException | None], None]


class SqliteStore:
    """A database file that this process alone writes."""

    shared = False

    def __init__(
        self, path: Path, clock: Clock, ids: IdSource, *, inline: bool = False, full: bool = True
    ) -> None:
        self.listener: Listener = lambda events: None
        self.doorbell: Callable[[], None] = lambda: None
        self._clock, self._ids, self._inline = clock, ids, inline
        self._lock = _lock(path)
        try:
            self._engine = _engine(path, full)
            with self._engine.connect() as connection:
                upgrade(connection)
        except BaseException:
            self._lock.close()
            raise
        self._writer: Connection | None = None
        self._idle: list[Connection] = []  # of readers, between two questions
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._readers = None if inline else ThreadPoolExecutor(2, "roost-reader")
        self._thread: threading.Thread | None = None
        if not inline:
            self._thread = threading.Thread(target=self._serve, name="roost-writer", daemon=True)
            self._thread.start()

    # Reading

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Ask on a view that no writer disturbs."""
        if self._readers is None:
            return self._ask(question)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._ask, question)

    def _ask(self, question: Callable[[Connection], T]) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:  # not asked before: another thread may take the last one meanwhile
            connection = self._connect()
        raw = _raw(connection)
        try:
            raw.execute("BEGIN")
            try:
                return question(connection)
            finally:
                raw.rollback()
        except (DBAPIError, sqlite3.Error) as error:
            raise _unavailable(error) from error
        finally:
            self._idle.append(connection)

    # Writing

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Make one change."""
        return await self._submit(change, actor)

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        """Commit a batch of creates."""

        def change(tx: Tx) -> list[Outcome]:
            raw = _raw(tx.connection)
            batch = SqliteClaims(raw, proposals, snapshot, tx.at_ms)
            outcomes = batch.commit()
            if atomic:
                refuse_some(outcomes)
            tx.events += created_events(
                proposals, outcomes, batch.generations, tx.at_ms, actors, tx.name
            )
            return outcomes

        try:
            return await self._submit(change, "roost")
        except NotAll as refused:
            return refused.outcomes

    async def _submit(self, change: Callable[[Tx], T], actor: str) -> T:
        if self._inline:
            box: list[tuple[Any, BaseException | None]] = []
            self._run([_Job(change, actor, lambda value, error: box.append((value, error)))])
            value, error = box[0]
            if error is not None:
                raise error
            result: T = value
            return result
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def done(value: Any, error: BaseException | None) -> None:
            def settle() -> None:
                if future.cancelled():
                    return
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(value)

            loop.call_soon_threadsafe(settle)

        self._loop = loop
        self._jobs.put(_Job(change, actor, done))
        return await future

    def _serve(self) -> None:
        """Take what waits, commit it together, again and again, until told to stop."""
        while True:
            first = self._jobs.get()
            if first is None:
                return
            jobs, stop = [first], False
            while len(jobs) < MOST_TOGETHER:
                try:
                    more = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    stop = True
                    break
                jobs.append(more)
            self._run(jobs)
            if stop:
                return

    def _run(self, jobs: list[_Job]) -> None:
        name = self._ids.new("tx")
        results: list[tuple[Any, BaseException | None]] = []
        events: list[Event] = []
        try:
            connection = self._connection()
            raw = _raw(connection)
            raw.execute("BEGIN IMMEDIATE")
            try:
                for job in jobs:
                    tx = Tx(connection, job.actor, self._clock.wall_ms(), name)
                    results.append(self._run_one(raw, job, tx, events))
                _append_events(raw, events)
            except BaseException:
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
                raise
            self._commit(raw, name)
        except Exception as error:  # noqa: BLE001 - a service loop: without it nobody can write
            self._drop_connection()
            for job in jobs:
                job.done(None, _unavailable(error))
            return
        if events:
            if self._inline:
                self.listener(events)
            else:
                self._loop.call_soon_threadsafe(self.listener, events)
        for job, (value, failure) in zip(jobs, results, strict=True):
            job.done(value, failure)

    def _run_one(
        self, raw: sqlite3.Connection, job: _Job, tx: Tx, events: list[Event]
    ) -> tuple[Any, BaseException | None]:
        raw.execute("SAVEPOINT job")
        try:
            value = job.change(tx)
        except (IntegrityError, sqlite3.IntegrityError) as error:
            # A constraint ends its statement, not the transaction: the others go on.
            raw.execute("ROLLBACK TO job")
            raw.execute("RELEASE job")
            return None, InvariantBroken(f"the database refused a value: {error}")
        except (DBAPIError, sqlite3.Error):
            raise
        except Exception as error:  # noqa: BLE001 - a service loop: it belongs to the one who asked
            raw.execute("ROLLBACK TO job")
            raw.execute("RELEASE job")
            return None, error
        raw.execute("RELEASE job")
        events += tx.events
        return value, None

    def _commit(self, raw: sqlite3.Connection, name: str) -> None:
        """Commit; when that fails, ask the database whether it happened all the same."""
        try:
            raw.execute("COMMIT")
        except sqlite3.Error:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            kept = raw.execute("SELECT 1 FROM events WHERE tx = ? LIMIT 1", (name,)).fetchone()
            if kept is None:
                raise

    def _connection(self) -> Connection:
        if self._writer is None:
            self._writer = self._connect()
        return self._writer

    def _connect(self) -> Connection:
        # SQLAlchemy must not begin by itself: transactions are this module's.
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _drop_connection(self) -> None:
        if self._writer is not None:
            self._writer.invalidate()
            self._writer.close()
            self._writer = None

    async def close(self) -> None:
        """Write what waits, then let go."""
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        if self._readers is not None:
            self._readers.shutdown()
        if self._writer is not None:
            self._writer.close()
        for connection in self._idle:
            connection.close()
        self._engine.dispose()
        self._lock.close()


def _engine(path: Path, full: bool) -> Engine:
    def connect() -> Any:
        connection = sqlite3.connect(
            path, timeout=30, isolation_level=None, check_same_thread=False
        )  # BEGIN is ours
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'OFF'}")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA cache_size = -65536")
        # Pages that a savepoint may want back; nothing in them outlives a transaction.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA busy_timeout = 30000")
        return connection

    dialect = _dialect()
    engine = Engine(QueuePool(connect, dialect=dialect), dialect, make_url(f"sqlite:///{path}"))
    return engine.execution_options(compiled_cache=_compiled)


@cache
def _dialect() -> Dialect:
    """Return SQLAlchemy's idea of this SQLite, found out by connecting once."""
    engine = create_engine("sqlite://")
    with engine.connect():
        pass
    engine.dispose()
    return engine.dialect


def _append_events(raw: sqlite3.Connection, events: list[Event]) -> None:
    """Number and insert events: the last statements of a transaction."""
    if not events:
        return
    cursor = raw.cursor()
    cursor.execute(
        "UPDATE counters SET value = value + ? WHERE name = 'events' RETURNING value",
        (len(events),),
    )
    number_events(events, cursor.fetchone()[0])
    insert_rows(cursor, "events", _EVENT, [event.columns() for event in events])


def _raw(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def _lock(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(path.name + ".lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise Conflict(
            f"another roost process uses {str(path)!r}",
            hint="Maybe stop it first; several processes need PostgreSQL (--database).",
        ) from error
    return file


def _unavailable(error: BaseException) -> RoostError:
    cause = getattr(error, "orig", None) or error
    return DatabaseUnavailable(
        f"the database did not take the change: {cause}", hint="Maybe the disk is full?"
    )
