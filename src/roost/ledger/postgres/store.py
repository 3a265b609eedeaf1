"""The ledger in PostgreSQL: the same rows, many processes that write.

Ordinary changes go through SQLAlchemy, claims through asyncpg. A deadlock or a serialisation
failure is tried again. When the connection is lost during a commit, the truth is read again: the
event counter's row is locked first, which waits until the lost transaction is over either way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import asyncpg
from sqlalchemy import Connection, Dialect, Engine, bindparam, make_url, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import LRUCache

from roost.base.backoff import BackOff
from roost.base.clock import Clock
from roost.base.errors import Conflict, InvariantBroken, RoostError
from roost.base.ids import IdSource
from roost.base.steady import SteadyWall
from roost.ledger.claims.proposals import (
    KEPT,
    NotAll,
    Outcome,
    Proposal,
    created_events,
    refuse_some,
    separable,
)
from roost.ledger.postgres.claims import CHANNEL, PostgresClaims
from roost.ledger.postgres.claims import append_events as append_events_directly
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import counters, events
from roost.ledger.store import DatabaseContended, DatabaseUnavailable, InDoubt, Listener
from roost.ledger.upgrade.migrate import upgrade
from roost.ledger.upgrade.older import may_run_beside, write_created_for_older, write_for_older
from roost.ledger.writes.transaction import Tx, append_events, held_event

T = TypeVar("T")

#: Deadlock detected; could not serialise.
_AGAIN = frozenset({"40P01", "40001"})
#: Too many connections; the database was dropped.
_FULL_OF_CONNECTIONS, _DROPPED = "53300", "57P04"
_MOST_TRIES = 20
_WAITS = BackOff(0.01, 0.64)
#: How long to look for the truth after a lost commit before saying that it is in doubt.
_PATIENCE_S = 15.0
_LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg makes of a backend that ends between two answers
)

_COUNTER = select(counters.c.value).where(counters.c.name == "events").with_for_update()
#: Whatever the statistics say, rows are found by their keys in this transaction.
BY_KEY = text("SET LOCAL enable_seqscan = off")
#: Finds a transaction's events behind a sequence: `events` has no index by transaction.
FIND_TX = (
    select(events.c.seq)
    .where(events.c.seq > bindparam("since"), events.c.tx == bindparam("tx"))
    .order_by(events.c.seq)
)

#: The claim's statement is long, so it is planned once; and whatever the statistics say at that
#: moment (there are none of a fleet that has just registered), it finds its rows by their keys.
_CLAIM_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


#: Statements that a connection keeps prepared. All that a process asks are some three hundred; with
#: SQLAlchemy's hundred, the doctor alone turns them all out and each is prepared anew.
_MOST_PREPARED = 1000
#: Statements that were compiled once serve every store of the process that speaks to servers of the
#: same version, like the dialect that they were compiled for: a new store compiles none.
_compiled: LRUCache[Any, Any] = LRUCache(1000)
_dialects: dict[tuple[Any, ...], Dialect] = {}
#: Server's processes that are remembered; the pool has two at a time.
_MOST_BACKENDS = 64
_BACKEND_START = "SELECT backend_start FROM pg_stat_activity WHERE pid = $1"
_END_BACKEND = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = :pid AND backend_start = COALESCE(CAST(:began AS timestamptz), backend_start)"
)


class _Backend(NamedTuple):
    """A process of the database server."""

    pid: int
    began: datetime | None


def _with_compiled(engine: AsyncEngine) -> AsyncEngine:
    """Return an engine with the same connections that takes what is compiled from all before it.

    It must have connected: only then does a dialect know which server it speaks to.
    """
    own = engine.sync_engine
    knows = (own.dialect.server_version_info, own.dialect.default_schema_name)
    dialect = _dialects.setdefault(knows, own.dialect)
    shared = Engine(own.pool, dialect, own.url)
    return AsyncEngine(shared.execution_options(compiled_cache=_compiled))


class _ClaimConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg is not typed
    """A connection that only ever ran whole transactions: it is clean when it is given back."""

    def get_reset_query(self) -> str:
        """Return no reset query: one round trip less after every commit."""
        return ""


class PostgresStore:
    """The ledger in a PostgreSQL database that several control planes share."""

    shared = True

    def __init__(self, engine: AsyncEngine, dsn: str, clock: Clock, ids: IdSource) -> None:
        self.listener: Listener = lambda events: None
        self.doorbell: Callable[[], None] = lambda: None
        self._engine, self._dsn, self._clock, self._ids = engine, dsn, clock, ids
        self._steady = SteadyWall(clock, aloud=False)
        self._pool: Any = None
        self._began: dict[int, datetime] = {}  # the server's processes that claims were sent to
        self._ears: asyncio.Task[None] | None = None
        self._older = False  # processes of the release before may be there; asked each time

    @classmethod
    async def open(cls, url: str, clock: Clock, ids: IdSource) -> "PostgresStore":
        """Connect, bring the schema up to date and begin to listen."""
        parsed = make_url(url)
        dsn = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        engine = create_async_engine(
            parsed.set(drivername="postgresql+asyncpg"), pool_size=4, max_overflow=4,
            pool_pre_ping=False, connect_args={"prepared_statement_cache_size": _MOST_PREPARED},
        )  # fmt: skip
        store = cls(engine, dsn, clock, ids)
        try:
            async with engine.connect() as connection:
                store._engine = _with_compiled(engine)
                await connection.run_sync(upgrade)
                store._older = await connection.run_sync(may_run_beside)
            store._pool = await asyncpg.create_pool(
                dsn, min_size=1, max_size=2, connection_class=_ClaimConnection,
                server_settings=_CLAIM_SETTINGS, init=store._note_backend,
            )  # fmt: skip
        except (DBAPIError, asyncpg.PostgresError, *_LOST) as error:
            await engine.dispose()
            raise (_unavailable(error) if _may_pass(error) else _refused(error)) from error
        except BaseException:
            await engine.dispose()
            raise
        store._ears = asyncio.create_task(store._listen())
        return store

    async def _note_backend(self, connection: Any) -> None:
        """Note when the server's process of a new connection began: numbers are used again."""
        pid = connection.get_server_pid()
        self._began[pid] = await connection.fetchval(_BACKEND_START, pid)
        if len(self._began) > _MOST_BACKENDS:
            del self._began[next(iter(self._began))]

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Run a read transaction on one consistent view."""

        async def ask(_name: str) -> T:
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="REPEATABLE READ")
                return await connection.run_sync(question)

        return await self._persist(ask)

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Run a write transaction; try it again after deadlocks."""

        async def attempt(name: str) -> T:
            recorded: list[Event] = []
            older = self._older

            def run(connection: Connection) -> T:
                nonlocal older
                now, *perhaps = self._steady.moments_ms()
                tx = Tx(connection, actor, now, name, perhaps)
                value = change(tx)
                tx.tell_held()
                if older and tx.events:
                    older = write_for_older(connection, tx.events)
                append_events(connection, tx.events, tx.constraints)
                if tx.events:
                    connection.execute(text(f"NOTIFY {CHANNEL}"))
                recorded.extend(tx.events)
                return value

            async with self._engine.connect() as connection:
                value = await connection.run_sync(run)
                try:
                    await connection.commit()
                except (DBAPIError, *_LOST) as error:
                    if _state(error) in _AGAIN:
                        raise
                    since = recorded[0].seq - 1 if recorded else 0
                    await self._resolve(name, recorded, since, error)
            self._older = older
            self.listener(recorded)
            return value

        return await self._persist(attempt)

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        """Commit a batch of creates in one transaction."""

        async def attempt(name: str) -> list[Outcome]:
            connection = await self._pool.acquire()
            try:
                now, *perhaps = self._steady.moments_ms()
                batch = PostgresClaims(connection, proposals, snapshot, now, perhaps)
                outcomes, recorded = [KEPT] * len(proposals), None
                if not self._older and separable(proposals):
                    recorded = await self._keep_all(batch, actors, name)
                if recorded is None:
                    recorded, outcomes = await self._keep_each(batch, actors, name, atomic=atomic)
            finally:
                await self._release(connection)
            self.listener(recorded)
            return outcomes

        try:
            return await self._persist(attempt)
        except NotAll as refused:
            return refused.outcomes

    async def _keep_all(
        self, batch: PostgresClaims, actors: Sequence[str], name: str
    ) -> list[Event] | None:
        """Keep a whole batch by one statement that is its own transaction; None when it cannot."""
        kept = [KEPT] * len(batch.proposals)
        recorded = created_events(batch.proposals, kept, {}, batch.at_ms, actors, name)
        pid = batch.connection.get_server_pid()
        try:
            return recorded if await batch.keep_all(recorded, name) else None
        except (asyncpg.PostgresError, *_LOST) as error:
            if not _is_lost(error):
                raise
            backend = _Backend(pid, self._began.get(pid))
            try:
                await self._resolve(name, recorded, batch.snapshot, error, backend)
            except InDoubt:
                raise
            except DatabaseUnavailable:
                raise error from None  # nothing is kept: it may be tried again
            return recorded

    async def _keep_each(
        self, batch: PostgresClaims, actors: Sequence[str], name: str, *, atomic: bool
    ) -> tuple[list[Event], list[Outcome]]:
        """Go through a batch step by step, in one transaction."""
        connection, proposals = batch.connection, batch.proposals
        transaction = connection.transaction()
        await transaction.start()
        try:
            outcomes = await batch.commit()
            if atomic:
                refuse_some(outcomes)
            recorded = created_events(
                proposals, outcomes, batch.generations, batch.at_ms, actors, name
            )
            if self._older and recorded:
                self._older = await write_created_for_older(
                    connection, proposals, outcomes, recorded
                )
            if batch.held:
                recorded.append(held_event(batch.held, actors[0], batch.at_ms, name))
            await append_events_directly(connection, recorded, batch.constraints)
        except BaseException:
            if not connection.is_closed():
                await transaction.rollback()
            raise
        try:
            await transaction.commit()
        except (asyncpg.PostgresError, *_LOST) as error:
            # Also what the server itself says: it may be told to end just after the commit.
            if _state(error) in _AGAIN:
                raise
            await self._resolve(name, recorded, batch.snapshot, error)
        return recorded, outcomes

    async def _release(self, connection: Any) -> None:
        """Give a connection back to the pool; losing it changes nothing about the commit."""
        with suppress(asyncpg.PostgresError, *_LOST):  # the pool has ended it then
            await self._pool.release(connection)

    async def _persist(self, attempt: Callable[[str], Awaitable[T]]) -> T:
        """Repeat a transaction after deadlocks, and while the database is away, within bounds."""
        give_up = self._clock.monotonic() + _PATIENCE_S / 3
        for tried in range(_MOST_TRIES):
            try:
                return await attempt(self._ids.new("tx"))
            except RoostError:
                raise
            except (DBAPIError, asyncpg.PostgresError, *_LOST) as error:
                again = _state(error) in _AGAIN
                lost = _is_lost(error) and self._clock.monotonic() < give_up
                if not again and not lost:
                    raise _failure(error) from error
                await self._clock.sleep(_WAITS.wait_s(tried))
        raise DatabaseContended("the database was too contended")

    async def _resolve(
        self,
        name: str,
        recorded: list[Event],
        since: int,
        cause: BaseException,
        backend: _Backend | None = None,
    ) -> None:
        """Find out whether a transaction was committed; raise when it was not.

        Its events, if there are any, come behind the one that the ledger had reached before it
        began (`since`); their sequences may not be known here. A transaction that was told to
        commit holds the counter of events, which is waited for. A statement that commits by itself
        may not even have begun: the server's process for it is ended before anything is believed.
        """
        give_up = self._clock.monotonic() + _PATIENCE_S

        def find(connection: Connection) -> list[int] | None:
            if backend is not None and connection.execute(_END_BACKEND, backend._asdict()).all():
                return None
            connection.execute(_COUNTER)  # waits for the transaction, if it still goes on
            connection.execute(BY_KEY)
            return list(connection.execute(FIND_TX, {"since": since, "tx": name}).scalars())

        while recorded:
            found, lost = None, None
            try:
                async with self._engine.connect() as connection:
                    found = await connection.run_sync(find)
            except (DBAPIError, *_LOST) as error:
                lost = error
            if found is None:
                if self._clock.monotonic() >= give_up:
                    raise InDoubt(
                        "the database went away during a commit; what became of it is not known",
                        hint="Maybe ask again with the same idempotency key.",
                    ) from lost
                await self._clock.sleep(0.2 if lost is not None else 0.02)
                continue
            if not found:
                break
            for event, seq in zip(recorded, found, strict=True):
                event.seq = seq
            return
        raise DatabaseUnavailable(f"the database did not take the change: {cause}") from cause

    async def _listen(self) -> None:
        """Keep one connection that hears the doorbell; events missed meanwhile are read anyway."""
        while True:
            try:
                connection = await asyncpg.connect(self._dsn)
                try:
                    await self._hear(connection)
                finally:
                    if not connection.is_closed():
                        await connection.close(timeout=2)
            except (asyncpg.PostgresError, *_LOST):
                pass
            await self._clock.sleep(0.5)

    async def _hear(self, connection: Any) -> None:
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        await connection.add_listener(CHANNEL, lambda *_: self.doorbell())
        self.doorbell()  # something may have happened before we listened
        await gone.wait()

    async def close(self) -> None:
        """Close every connection to the database."""
        if self._ears is not None:
            self._ears.cancel()
            await asyncio.gather(self._ears, return_exceptions=True)
        if self._pool is not None:
            await self._pool.close()
        await self._engine.dispose()


def _state(error: BaseException) -> str | None:
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None)
    return state if isinstance(state, str) else None


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    state = _state(error) or ""
    # 08: connection; 57P: the server shuts down or is starting.
    if state.startswith(("08", "57P")):
        return True
    cause: BaseException | None = getattr(error, "orig", None) or error
    while cause is not None:
        if isinstance(cause, _LOST):
            return True
        cause = cause.__cause__
    return False


def _may_pass(error: BaseException) -> bool:
    """Say whether a database that could not be opened may open later as it is set up now."""
    cause = getattr(error, "orig", None) or error
    if _state(error) == _DROPPED or isinstance(cause, asyncpg.ClientConfigurationError):
        return False
    return _state(error) in _AGAIN | {_FULL_OF_CONNECTIONS} or _is_lost(error)


def _refused(error: BaseException) -> Conflict:
    """Return the error for a database that somebody has to set up differently first."""
    cause = getattr(error, "orig", None) or error
    hint = None
    if (_state(error) or "").startswith(("28", "3D")):
        hint = "Maybe the user, the password or the name in the database's URL is wrong."
    return Conflict(f"the database refuses to be used: {cause}", hint=hint)


def _failure(error: BaseException) -> RoostError:
    """Return the error of ours for one of the database; refused values are a bug, not an outage."""
    if (_state(error) or "").startswith(("22", "23")):
        cause = getattr(error, "orig", None) or error
        return InvariantBroken(f"the database refused a value: {cause}")
    return _unavailable(error)


def _unavailable(error: BaseException) -> DatabaseUnavailable:
    cause = getattr(error, "orig", None) or error
    return DatabaseUnavailable(f"the database cannot be used: {cause}")
