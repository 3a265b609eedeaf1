"""The base of the events: rows that events up to a sequence lead to, in place of those events.

    events 1 .. base   folded into `folded_rows`, and gone
    events base+1 ..   kept: for so long, and no more than so many (`EventsKept`)

`fold_old` moves the base on by a piece: of each row that those events speak of the last word is
written, and the events are deleted in the same transaction. So folding the base and the rest of the
events still yields the rows (`fold.compare`), and what a doctor reads stays as large as the fleet.
Who asks for events at or before the base is told that they are gone (`read_base`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select, tuple_, update

from roost.base.errors import Conflict
from roost.ledger.schema.tables import counters, events, folded_rows
from roost.ledger.upkeep.fold import FIRST, FOLDED, Row
from roost.ledger.upkeep.retention import DAY_S, Purged
from roost.ledger.writes.transaction import Tx, row_json

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_BASE = select(counters.c.value).where(counters.c.name == "folded")
_HEAD = select(counters.c.value).where(counters.c.name == "events")
#: Keys of one statement.
_TOGETHER = 400

#: The newest events that are kept however old: processes and hosts are compared with them.
LEAST_EVENTS = 1_000

Word = tuple[str, str]  # a table, and the key of a row


@dataclass(frozen=True, slots=True)
class EventsKept:
    """How long events are kept, and how many; the newest `least` always are."""

    seconds: int = 90 * DAY_S
    most: int = 500_000
    least: int = LEAST_EVENTS


def read_base(connection: Connection) -> int:
    """Return the sequence up to which events are folded and gone; 0 while all are there."""
    return int(connection.execute(_BASE).scalar_one())


def fold_old(tx: Tx, kept: EventsKept, now_ms: int, piece: int) -> Purged:
    """Fold a piece of the events that are too old or too many into the base."""
    base = int(tx.connection.execute(_BASE.with_for_update()).scalar_one())
    head = int(tx.connection.execute(_HEAD).scalar_one())
    last = min(base + piece, head - kept.least)
    query = select(events.c.seq, events.c.at_ms, events.c.changes)
    found = tx.connection.execute(
        query.where(events.c.seq > base, events.c.seq <= last).order_by(events.c.seq)
    )
    words = _Words(tx.connection, first=base == 0)
    reached = base
    for seq, at_ms, changes in found.all():
        if seq <= head - kept.most or at_ms <= now_ms - 1000 * kept.seconds:
            words.take(changes)
            reached = seq
        else:
            break
    if reached == base:
        return Purged(0, more=False)
    words.write()
    moved = update(counters).where(counters.c.name == "folded", counters.c.value == base)
    if tx.connection.execute(moved.values(value=reached)).rowcount != 1:
        raise Conflict("another process has folded the same events")
    tx.connection.execute(delete(events).where(events.c.seq <= reached))
    return Purged(reached - base, more=reached == last)


class _Words:
    """The last word of some events on each row that they speak of."""

    def __init__(self, connection: Connection, *, first: bool) -> None:
        self._connection = connection
        self._rows: dict[Word, Row | None] = {}
        self._gone: dict[str, None] = {}  # VMs, whose specs go with them
        self._generations: dict[str, int] = {}  # of groups that the base has
        if first:
            for noun, rows in FIRST.items():
                self._rows |= {(noun, key): row for key, row in rows.items()}

    def take(self, changes: str) -> None:
        """Take the words of one event."""
        for noun, rows in _decode(changes).items():
            if noun in FOLDED:
                for key, row in rows.items():
                    self._take_row(noun, key, row)
            elif noun == "group_generations":
                for group, generation in rows.items():
                    self._move_group(group, generation)

    def _take_row(self, noun: str, key: str, row: Row | None) -> None:
        self._rows[noun, key] = FOLDED[noun].known(row) if row is not None else None
        if noun == "groups":
            self._generations.pop(key, None)
        elif noun == "vms" and row is None:
            self._gone[key] = None
            for spec in [word for word in self._rows if word[0] == "vm_specs"]:
                if _owner(*spec) == key:
                    self._rows[spec] = None

    def _move_group(self, group: str, generation: int) -> None:
        row = self._rows.get(("groups", group))
        if row is not None:
            row["generation"] = generation
        elif ("groups", group) not in self._rows:
            self._generations[group] = generation

    def write(self) -> None:
        """Write these words over those of the base."""
        for group, generation in self._generations.items():
            row = self._known_group(group)
            if row is not None:
                self._rows["groups", group] = {**row, "generation": generation}
        for gone in _pieces(list(self._gone)):
            self._connection.execute(delete(folded_rows).where(folded_rows.c.owner.in_(gone)))
        key = tuple_(folded_rows.c.noun, folded_rows.c.key)
        for said in _pieces(list(self._rows)):
            self._connection.execute(delete(folded_rows).where(key.in_(said)))
        new = [
            {"noun": noun, "key": name, "owner": _owner(noun, name), "row": row_json(row)}
            for (noun, name), row in self._rows.items()
            if row is not None
        ]
        if new:
            self._connection.execute(insert(folded_rows), new)

    def _known_group(self, group: str) -> Row | None:
        query = select(folded_rows.c.row)
        query = query.where(folded_rows.c.noun == "groups", folded_rows.c.key == group)
        text = self._connection.execute(query).scalar()
        return _decode(text) if text is not None else None


def _owner(noun: str, key: str) -> str | None:
    """Return the VM with which a row goes although no event says so."""
    return key.rpartition("|")[0] if noun == "vm_specs" else None


def _pieces(of: list[Any]) -> Iterator[list[Any]]:
    for begin in range(0, len(of), _TOGETHER):
        yield of[begin : begin + _TOGETHER]
