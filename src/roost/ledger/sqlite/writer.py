"""The one writer of a SQLite ledger: what waits together shares a transaction and an fsync.

Each change stands on a savepoint of its own, so one that is refused does not hurt the others. A
batch of creates is tried as a whole first (`whole`); when nothing else waits, that statement
is the transaction. The store decides in which thread this runs and tells those who wait.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, IntegrityError

from roost.base.clock import Clock
from roost.base.errors import InvariantBroken, RoostError
from roost.base.ids import IdSource
from roost.base.steady import SteadyWall
from roost.ledger.claims import capacity
from roost.ledger.claims.capacity import Charge
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import events as events_table
from roost.ledger.sqlite.rows import insert_rows
from roost.ledger.sqlite.whole import WholeBatch, install
from roost.ledger.store import DatabaseUnavailable
from roost.ledger.writes.transaction import (
    ConstraintsMoved,
    Tx,
    constraints_generation,
    number_events,
)

#: What a change returned, or what it failed with.
Result = tuple[Any, BaseException | None]

_EVENT = tuple(events_table.c.keys())
#: Finds a transaction behind a sequence: `events` has no index by transaction.
FIND_TX = "SELECT 1 FROM events WHERE seq > ? AND tx = ? LIMIT 1"


@dataclass(slots=True)
class Job:
    """A change that waits to be written, and whom to tell."""

    change: Callable[[Tx], Any]
    actor: str
    done: Callable[[Any, BaseException | None], None]
    whole: WholeBatch | None = None  # tried first: the same change as one statement


class Writer:
    """Writes changes on one connection, which it opens again when that has failed."""

    def __init__(self, connect: Callable[[], Connection], clock: Clock, ids: IdSource) -> None:
        self._connect, self._ids = connect, ids
        self._steady = SteadyWall(clock, aloud=False)
        self._open: Connection | None = None
        self._last: int | None = None  # the event that the ledger has reached; None: ask it
        self._charges: tuple[Charge, Charge] | None = None  # that the view's triggers were made of

    def run(self, jobs: Sequence[Job]) -> tuple[list[Event], list[Result]]:
        """Write all jobs; return the events in order, and a result for each job."""
        try:
            if self._open is None:
                self._open = self._connect()
            raw = raw_of(self._open)
            alone = jobs[0].whole if len(jobs) == 1 else None
            if alone is not None and self._write_alone(raw, alone):
                return alone.events, [(alone.outcomes, None)]
            return self._write_together(self._open, raw, jobs)
        except Exception as error:  # noqa: BLE001 - a service loop: without it nobody can write
            self.close(invalid=True)
            return [], [(None, unavailable(error))] * len(jobs)

    def close(self, *, invalid: bool = False) -> None:
        """Close the connection, for good if it cannot be trusted; the next job opens one."""
        if self._open is not None:
            if invalid:
                self._open.invalidate()
            self._open.close()
        self._open = self._last = self._charges = None

    def _write_alone(self, raw: sqlite3.Connection, whole: WholeBatch) -> bool:
        """Write a batch as a transaction of its own; False when somebody would lose."""
        since = self._reached(raw)
        try:
            return self._write_whole(raw, whole)
        except sqlite3.Error:
            if not _is_kept(raw, whole.tx, since):
                raise
            self._last = number_events(whole.events, since + len(whole.events))
            return True

    def _write_together(
        self, connection: Connection, raw: sqlite3.Connection, jobs: Sequence[Job]
    ) -> tuple[list[Event], list[Result]]:
        name = self._ids.new("tx")
        results: list[Result] = []
        events: list[Event] = []
        waiting: list[Event] = []  # not inserted yet
        raw.execute("BEGIN IMMEDIATE")
        since = self._reached(raw)
        try:
            for job in jobs:
                # One that was alone has been tried already.
                if job.whole is not None and len(jobs) > 1:
                    self._append(raw, waiting, events)
                    if self._write_whole(raw, job.whole):
                        events += job.whole.events
                        results.append((job.whole.outcomes, None))
                        continue
                now, *perhaps = self._steady.moments_ms()
                tx = Tx(connection, job.actor, now, name, perhaps)
                results.append(_run_one(raw, job, tx, waiting))
            self._append(raw, waiting, events)
        except BaseException:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            raise
        _commit(raw, [event.tx for event in events[-1:]], since)
        return events, results

    def _reached(self, raw: sqlite3.Connection) -> int:
        """Return the last event's sequence; nobody else writes, so it is asked for once."""
        if self._last is None:
            found = raw.execute("SELECT value FROM counters WHERE name = 'events'").fetchone()
            self._last = int(found[0])
        return self._last

    def _write_whole(self, raw: sqlite3.Connection, whole: WholeBatch) -> bool:
        charges = (capacity.CHARGE_HOSTS, capacity.CHARGE_PROJECTS)
        if self._charges != charges:
            install(raw, *charges)
            self._charges = charges
        last = self._reached(raw)
        if not whole.write(raw, last):
            return False
        self._last = number_events(whole.events, last + len(whole.events))
        return True

    def _append(self, raw: sqlite3.Connection, waiting: list[Event], events: list[Event]) -> None:
        """Insert events that wait, and note them with those that are in the ledger."""
        if waiting:
            self._last = _append_events(raw, waiting)
            events += waiting
            waiting.clear()


def _run_one(raw: sqlite3.Connection, job: Job, tx: Tx, events: list[Event]) -> Result:
    raw.execute("SAVEPOINT job")
    try:
        value = job.change(tx)
        if tx.constraints not in (None, constraints_generation(tx.connection)):
            raise ConstraintsMoved
        tx.tell_held()
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


def _append_events(raw: sqlite3.Connection, events: list[Event]) -> int:
    """Number and insert events; return the last one's sequence."""
    cursor = raw.cursor()
    cursor.execute(
        "UPDATE counters SET value = value + ? WHERE name = 'events' RETURNING value",
        (len(events),),
    )
    last = number_events(events, int(cursor.fetchone()[0]))
    insert_rows(cursor, "events", _EVENT, [event.columns() for event in events])
    return last


def _commit(raw: sqlite3.Connection, names: list[str], since: int) -> None:
    """Commit; when that fails, ask the database whether it happened all the same."""
    try:
        raw.execute("COMMIT")
    except sqlite3.Error:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        if not any(_is_kept(raw, name, since) for name in names):
            raise


def _is_kept(raw: sqlite3.Connection, tx: str, since: int) -> bool:
    """Say whether a transaction's events are in the ledger, behind those that were there before."""
    return raw.execute(FIND_TX, (since, tx)).fetchone() is not None


def raw_of(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection behind SQLAlchemy's."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def unavailable(error: BaseException) -> RoostError:
    """Return what callers are told when the database has failed."""
    cause = getattr(error, "orig", None) or error
    return DatabaseUnavailable(
        f"the database did not take the change: {cause}", hint="Maybe the disk is full?"
    )
