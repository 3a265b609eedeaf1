"""One transaction: a connection, and the events that will stand beside its rows.

A change is written as a function of a `Tx`; it must be repeatable, because a store may have to run
it again after a deadlock. Its events get their sequence from one counter row in the transaction's
last statement: whoever sees a sequence sees every smaller one, so a reader that resumes by sequence
misses nothing and finds no gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from roost.ledger.schema.rows import Changes, Event
from roost.ledger.schema.tables import counters
from roost.ledger.schema.tables import events as events_table
from roost.ledger.writes.statements import (
    delete_rows,
    find_row,
    find_rows,
    insert_row,
    insert_rows,
    update_row,
    update_rows,
)
from roost.model.kept import Kept

_json = msgspec.json.Encoder()
_COUNT_EVENTS = (
    update(counters)
    .where(counters.c.name == "events")
    .values(value=counters.c.value + bindparam("number", type_=counters.c.value.type))
    .returning(counters.c.value)
)
_COUNT_UNDER = _COUNT_EVENTS.where(counters.c.constraints == bindparam("under"))
_INSERT_EVENTS = insert(events_table)
_CONSTRAINTS = select(counters.c.constraints).where(counters.c.name == "events")
_ADVANCE_CONSTRAINTS = (
    update(counters)
    .where(counters.c.name == "events")
    .values(constraints=counters.c.constraints + 1)
    .returning(counters.c.constraints)
)


def row_json(row: object) -> str:
    """Write a row or any other plain value as JSON text."""
    return _json.encode(row).decode()


class ConstraintsMoved(Exception):
    """A transaction was decided under constraints that have changed since; nothing is kept."""


class Tx:
    """A write transaction: its connection, actor, time, and the events to append."""

    def __init__(
        self,
        connection: Connection,
        actor: str,
        at_ms: int,
        name: str,
        perhaps_ms: Sequence[int] = (),
    ) -> None:
        self.connection = connection
        self.actor = actor
        self.at_ms = at_ms
        self.perhaps_ms = perhaps_ms  # what the time may be as well: the clock is not believed yet
        self.name = name
        self.events: list[Event] = []  # their sequence is still 0
        #: The generation of constraints under which this was decided; the commit compares it.
        self.constraints: int | None = None
        #: What hosts keep free from now on, where this transaction has changed it.
        self.held: dict[int, Kept] = {}

    def event(
        self,
        kind: str,
        subject: str,
        changes: Changes,
        *,
        project: str | None = None,
        note: str = "",
        actor: str | None = None,
    ) -> None:
        """Record an event with the rows that this transaction changes."""
        self.events.append(
            Event(
                seq=0,
                at_ms=self.at_ms,
                actor=actor or self.actor,
                kind=kind,
                subject=subject,
                project=project,
                changes=row_json(changes),
                note=note,
                tx=self.name,
            )
        )

    def tell_held(self) -> None:
        """Say in a last event what hosts keep free now; each store calls it before it appends."""
        if self.held:
            self.events.append(held_event(self.held, self.actor, self.at_ms, self.name))

    # Statements that most changes are made of: rows by the values of some columns

    def find(self, table: Table, *, lock: bool = False, **key: Any) -> dict[str, Any] | None:
        """Return the row that has these values, or None; `lock` it until the end if asked."""
        return find_row(self.connection, table, key, lock=lock)

    def find_all(self, table: Table, **key: Any) -> list[dict[str, Any]]:
        """Return all rows that have these values, in the order of the primary key."""
        return find_rows(self.connection, table, key)

    def insert(self, table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
        """Insert a row and return it."""
        insert_row(self.connection, table, row)
        return dict(row)

    def insert_all(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert many rows in one statement."""
        insert_rows(self.connection, table, rows)

    def change_all(
        self, table: Table, key: tuple[str, ...], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Change many rows that are there in one statement; each is given whole."""
        update_rows(self.connection, table, key, rows)

    def change(self, table: Table, key: dict[str, Any], **values: Any) -> dict[str, Any] | None:
        """Change the row that has these values and return it, or None; `Plus` is relative."""
        return update_row(self.connection, table, key, values)

    def remove(self, table: Table, **key: Any) -> int:
        """Delete the rows that have these values and return how many."""
        return delete_rows(self.connection, table, key)

    # Any other condition; what runs often gets a statement that was built once

    def rows(self, statement: Any, **parameters: Any) -> list[dict[str, Any]]:
        """Return all rows of a query as dicts."""
        found = self.connection.execute(statement, parameters)
        names = tuple(found.keys())
        return [dict(zip(names, row, strict=True)) for row in found]

    def row(self, statement: Any, **parameters: Any) -> dict[str, Any] | None:
        """Return the first row of a query, or None."""
        found = self.connection.execute(statement, parameters).mappings().first()
        return dict(found) if found is not None else None

    def update(
        self, table: Table, *where: ColumnElement[bool], **values: Any
    ) -> dict[str, Any] | None:
        """Update at most one row and return it as it is then, or None when none matched."""
        statement = update(table).where(*where).values(**values).returning(*table.c)
        found = self.connection.execute(statement).mappings().first()
        return dict(found) if found is not None else None

    def delete(self, table: Table, *where: ColumnElement[bool]) -> int:
        """Delete rows and return how many."""
        return self.connection.execute(delete(table).where(*where)).rowcount


def held_event(held: Mapping[int, Kept], actor: str, at_ms: int, tx: str) -> Event:
    """Return the event that says what hosts keep free; processes follow it, nothing folds it."""
    return Event(
        seq=0,
        at_ms=at_ms,
        actor=actor,
        kind="hosts.held_room",
        subject="hosts",
        project=None,
        # Without counters as processes of schema 0028 read it, which may be there then.
        changes=row_json(
            {"held": {str(n): kept if kept.counters else kept.limits for n, kept in held.items()}}
        ),
        note="",
        tx=tx,
    )


def constraints_generation(connection: Connection) -> int:
    """Return the generation of the constraints."""
    return int(connection.execute(_CONSTRAINTS).scalar_one())


def advance_constraints(tx: Tx) -> int:
    """Move the generation of the constraints and return it; no row is locked after this one."""
    return int(tx.connection.execute(_ADVANCE_CONSTRAINTS).scalar_one())


def append_events(
    connection: Connection, events: Iterable[Event], constraints: int | None = None
) -> None:
    """Number the events and insert them: the last statement of a transaction.

    Raises ConstraintsMoved when the constraints are not of this generation: the row that is counted
    in has it, so that nobody changes them between the comparison and the commit.
    """
    waiting = list(events)
    if not waiting:
        return
    if constraints is None:
        counted = connection.execute(_COUNT_EVENTS, {"number": len(waiting)})
    else:
        counted = connection.execute(_COUNT_UNDER, {"number": len(waiting), "under": constraints})
    last = counted.scalar_one_or_none()
    if last is None:
        raise ConstraintsMoved
    number_events(waiting, int(last))
    names = events_table.c.keys()
    rows = [dict(zip(names, event.columns(), strict=True)) for event in waiting]
    connection.execute(_INSERT_EVENTS, rows)


def number_events(events: list[Event], last: int) -> int:
    """Give events the sequences that end with `last`, and return that."""
    for seq, event in enumerate(events, last - len(events) + 1):
        event.seq = seq
    return last
