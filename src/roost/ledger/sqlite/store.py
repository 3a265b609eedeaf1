"""The ledger in one SQLite file: WAL, synchronous=FULL, one writer, group commit.

Everything that waits to be written when the writer becomes free shares one transaction and one
fsync (`writer`). The writer is a thread in production; `inline` runs it in the caller's
thread, for virtual time. A lock file keeps a second process off the database.
"""

import asyncio
import fcntl
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar

from sqlalchemy import Connection, Dialect, Engine, QueuePool, create_engine, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import LRUCache

from roost.base.clock import Clock
from roost.base.errors import Conflict
from roost.base.ids import IdSource
from roost.base.private import make_file, make_folder, tighten
from roost.ledger.claims.proposals import (
    KEPT,
    NotAll,
    Outcome,
    Proposal,
    created_events,
    refuse_some,
)
from roost.ledger.sqlite.claims import SqliteClaims
from roost.ledger.sqlite.whole import WholeBatch
from roost.ledger.sqlite.writer import Job, Result, Writer, raw_of, unavailable
from roost.ledger.store import DatabaseUnavailable, Listener
from roost.ledger.upgrade.migrate import refuse_foreign_file, upgrade
from roost.ledger.writes.transaction import Tx

T = TypeVar("T")

log = logging.getLogger("roost.ledger")

#: Statements that were compiled once serve every store of the process, like the dialect.
_compiled: LRUCache[Any, Any] = LRUCache(1000)

#: Files beside the database; SQLite gives those that it makes the mode of the database.
_BESIDE = ("", "-wal", "-shm", "-journal", ".lock")

#: Failures to open a file that may pass by themselves: it is in use, or its disk full or away. Any
#: other stays until somebody acts (no database, a damaged one, one that may not be written).
_MAY_PASS = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL,
    }
)  # fmt: skip

#: Changes that share a commit; more wait for the next, so that no caller waits for too many others.
#: Of batches of creates there is one in a commit: with all that wait in one, everybody is answered
#: at once, and the event loop then makes the next ones while the writer has nothing to write.
MOST_TOGETHER = 512


class SqliteStore:
    """The ledger in a SQLite file that this process alone writes."""

    shared = False

    def __init__(
        self, path: Path, clock: Clock, ids: IdSource, *, inline: bool = False, full: bool = True
    ) -> None:
        self.listener: Listener = lambda events: None
        self.doorbell: Callable[[], None] = lambda: None
        self._clock, self._ids, self._inline = clock, ids, inline
        self._lock = lock_file(path)
        _close_to_others(path)
        try:
            refuse_foreign_file(path)
            self._engine = _engine(path, full)
            with self._engine.connect() as connection:
                upgrade(connection)
        except (DBAPIError, sqlite3.DatabaseError) as error:
            self._lock.close()
            raise _not_opened(path, getattr(error, "orig", None) or error) from error
        except BaseException:
            self._lock.close()
            raise
        self._writer = Writer(self._connect, clock, ids)
        self._idle: list[Connection] = []  # of readers, between two questions
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._readers = None if inline else ThreadPoolExecutor(2, "roost-reader")
        self._thread: threading.Thread | None = None
        if not inline:
            self._thread = threading.Thread(target=self._serve, name="roost-writer", daemon=True)
            self._thread.start()

    # Reading

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Run a read transaction on one consistent view."""
        if self._readers is None:
            return self._ask(question)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._ask, question)

    def _ask(self, question: Callable[[Connection], T]) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:  # not asked before: another thread may take the last one meanwhile
            connection = self._connect()
        raw = raw_of(connection)
        try:
            raw.execute("BEGIN")
            try:
                return question(connection)
            finally:
                raw.rollback()
        except (DBAPIError, sqlite3.Error) as error:
            raise unavailable(error) from error
        finally:
            self._idle.append(connection)

    # Writing

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Run a write transaction, together with others that wait."""
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
            raw = raw_of(tx.connection)
            batch = SqliteClaims(raw, proposals, snapshot, tx.at_ms, tx.perhaps_ms)
            outcomes = batch.commit()
            if atomic:
                refuse_some(outcomes)
            tx.events += created_events(
                proposals, outcomes, batch.generations, tx.at_ms, actors, tx.name
            )
            tx.held |= batch.held
            return outcomes

        try:
            return await self._submit(change, "roost", self._whole(proposals, actors, snapshot))
        except NotAll as refused:
            return refused.outcomes

    def _whole(
        self, proposals: Sequence[Proposal], actors: Sequence[str], snapshot: int
    ) -> WholeBatch | None:
        """Return a batch as one statement if it can be one; made here, where no writer waits."""
        if not WholeBatch.takes(proposals):
            return None
        kept, at_ms, name = [KEPT] * len(proposals), self._clock.wall_ms(), self._ids.new("tx")
        events = created_events(proposals, kept, {}, at_ms, actors, name)
        return WholeBatch(proposals, events, snapshot, at_ms, name)

    async def _submit(
        self, change: Callable[[Tx], T], actor: str, whole: WholeBatch | None = None
    ) -> T:
        if self._inline:
            box: list[Result] = []
            self._run([Job(change, actor, lambda *found: box.append(found), whole)])
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
        self._jobs.put(Job(change, actor, done, whole))
        return await future

    def _serve(self) -> None:
        """Run the writer thread: commit together what waits, until told to stop."""
        held: Job | None = None  # taken from the queue, and left for the next commit
        while (first := held or self._jobs.get()) is not None:
            jobs, held, stop = [first], None, False
            batches = first.whole is not None
            while len(jobs) < MOST_TOGETHER and held is None and not stop:
                try:
                    more = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    stop = True
                elif more.whole is not None and batches:
                    held = more
                else:
                    batches |= more.whole is not None
                    jobs.append(more)
            self._run(jobs)
            if stop:
                return

    def _run(self, jobs: list[Job]) -> None:
        events, results = self._writer.run(jobs)
        if events:
            if self._inline:
                self.listener(events)
            else:
                self._loop.call_soon_threadsafe(self.listener, events)
        for job, (value, failure) in zip(jobs, results, strict=True):
            job.done(value, failure)

    def _connect(self) -> Connection:
        # SQLAlchemy must not begin by itself: transactions are this module's.
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    async def erase_traces(self) -> None:
        """Rewrite the file, so that nothing is left in it that was deleted or overwritten."""

        def rewrite() -> None:
            connection = self._connect()
            try:
                raw = raw_of(connection)
                raw.execute("VACUUM")
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            except (DBAPIError, sqlite3.Error) as error:
                raise unavailable(error) from error
            finally:
                connection.close()

        await asyncio.to_thread(rewrite)

    async def close(self) -> None:
        """Commit what waits, then close the database."""
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        if self._readers is not None:
            self._readers.shutdown()
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


def _not_opened(path: Path, cause: BaseException) -> DatabaseUnavailable | Conflict:
    """Return the error for a file that could not be opened: one to wait for, or a refusal."""
    code = getattr(cause, "sqlite_errorcode", None)
    kind = DatabaseUnavailable if code is not None and code & 0xFF in _MAY_PASS else Conflict
    return kind(
        f"{str(path)!r} cannot be opened as a ledger: {cause}",
        hint="Maybe name another file with --database or --data, or restore a backup.",
    )


def lock_file(path: Path) -> IO[bytes]:
    """Lock a ledger's file for this process; closing what is returned gives it back."""
    make_folder(path.parent)
    lock = path.with_name(path.name + ".lock")
    make_file(lock)
    file = lock.open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise Conflict(
            f"another roost process uses {str(path)!r}",
            hint="Maybe stop it first; several processes need PostgreSQL (--database).",
        ) from error
    return file


def _close_to_others(path: Path) -> None:
    """Make the database and what is beside it private, before a byte is written to it."""
    make_file(path)
    changed = tighten(path.with_name(path.name + each) for each in _BESIDE)
    if changed:
        names = ", ".join(each.name for each in changed)
        log.warning("other users could read %s in %s; they cannot any more", names, path.parent)
