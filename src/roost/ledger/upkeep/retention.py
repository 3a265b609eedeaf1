"""Delete what was kept for a while, piece by piece. Whoever owns rows says how long (`Part.keeps`).

None of it is folded from events, so nothing is said of it there. `surplus` looks, as a reader whom
no writer waits for, at what is more than wanted; `purge` deletes a bounded piece of that and of
what is too old. Call them again while there is `more`. Rows that belong to others (`Kept.parts`) go
before them, so that none is ever left of what is gone. Tombstones stay until the agent has acted on
them; events end another way (`base`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    Table,
    and_,
    func,
    literal,
    not_,
    or_,
    select,
    tuple_,
)
from sqlalchemy.sql.elements import ColumnElement

from roost.ledger.writes.transaction import Tx

HOUR_S, DAY_S = 3600, 86_400


class Newest(NamedTuple):
    """Of rows that share a value of `of`, the `most` with the highest `by`; both are the key."""

    of: str
    by: str
    most: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows that are kept for so long by the column `age`, in ms, and no more than so many."""

    table: Table
    age: str  # a row without it is still in use
    seconds: int
    most: int | None = None  # of the whole table, the youngest
    newest: Newest | None = None
    weight: str | None = None  # `most` is of this column's sum and not of rows
    parts: tuple[tuple[Table, str], ...] = ()  # tables whose rows name one of these in a column
    unless: ColumnElement[bool] | None = None  # still needed, however old
    young_s: int = 0  # one that is younger stays, however many there are


@dataclass(frozen=True, slots=True)
class Surplus:
    """What is more than wanted: rows by their keys, and one row with all that are older.

    That row is its age and its key: of rows of one millisecond some may be wanted and others not.
    """

    keys: tuple[tuple[Any, ...], ...] = ()
    beyond: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows are gone, and whether there may be more to delete."""

    rows: int
    more: bool


def surplus(connection: Connection, kept: Kept, piece: int) -> Surplus:
    """Find rows beyond the limits, a piece of them at most."""
    keys: tuple[tuple[Any, ...], ...] = ()
    beyond = None
    if kept.newest is not None:
        of, by = kept.table.c[kept.newest.of], kept.table.c[kept.newest.by]
        place = func.row_number().over(partition_by=of, order_by=by.desc()).label("place")
        ranked = select(of, by, place).subquery()
        too_many = select(*list(ranked.c)[:2]).where(ranked.c.place > kept.newest.most)
        keys = tuple(tuple(row) for row in connection.execute(too_many.limit(piece)))
    if kept.most is not None:
        row = _order(kept)
        young_first = [column.desc() for column in row]
        query = select(*row).where(row[0].is_not(None))
        if kept.weight is None:
            too_many = query.order_by(*young_first).offset(kept.most)
        else:
            weight = func.sum(kept.table.c[kept.weight])
            so_far = weight.over(order_by=young_first, rows=(None, 0))
            ranked = query.add_columns(so_far.label("so_far")).subquery()
            in_order = [ranked.c[column.name].desc() for column in row]
            too_many = select(*list(ranked.c)[:-1]).where(ranked.c.so_far > kept.most)
            too_many = too_many.order_by(*in_order)
        found = connection.execute(too_many.limit(1)).first()
        beyond = None if found is None else tuple(found)
    return Surplus(keys, beyond)


def _order(kept: Kept) -> list[Any]:
    """Return the columns by which rows are older or younger, never the same."""
    return [kept.table.c[kept.age], *kept.table.primary_key.columns]


def _too_old(kept: Kept, now_ms: int, beyond: tuple[Any, ...] | None) -> ColumnElement[bool]:
    age = kept.table.c[kept.age]
    until_ms = now_ms - 1000 * kept.seconds
    if beyond is None:
        return age <= until_ms
    last_ms = min(beyond[0], now_ms - 1000 * kept.young_s)
    row = _order(kept)
    edge = tuple_(*(literal(value, each.type) for value, each in zip(beyond, row, strict=True)))
    # The first bound is what an index is walked by; it stops there.
    return and_(
        age <= max(until_ms, last_ms),
        or_(age <= until_ms, tuple_(*row) <= edge),
    )


def purge(tx: Tx, kept: Kept, now_ms: int, piece: int, seen: Surplus | None = None) -> Purged:
    """Delete a piece of the rows that are too old, and of those beyond the limits."""
    seen = seen or Surplus()
    table, age = kept.table, kept.table.c[kept.age]
    key: list[Any] = list(table.primary_key.columns)
    oldest = select(*key).where(_too_old(kept, now_ms, seen.beyond)).order_by(age).limit(piece)
    if kept.unless is not None:
        oldest = oldest.where(not_(kept.unless))
    if kept.parts:
        return _purge_whole(tx, kept, oldest, piece)
    old = tx.delete(table, tuple_(*key).in_(oldest))
    many = 0
    if seen.keys:
        assert kept.newest is not None
        pair = tuple_(table.c[kept.newest.of], table.c[kept.newest.by])
        many = tx.delete(table, pair.in_(seen.keys))
    return Purged(old + many, more=max(old, len(seen.keys)) >= piece)


def _purge_whole(tx: Tx, kept: Kept, oldest: Select[Any], piece: int) -> Purged:
    """Delete rows that others belong to, those first; one with more of them than a piece waits."""
    [key] = kept.table.primary_key.columns
    # Whoever begins to need a row locks it. So they are locked first, what is locked already is
    # passed over, and the same question, begun after that, says which of them nobody needs.
    locked = oldest.with_for_update(of=kept.table, skip_locked=True)
    names = list(tx.connection.execute(locked).scalars())
    needless = set(tx.connection.execute(oldest).scalars()) if names else set()
    gone = 0
    for name in names:
        if name not in needless:
            continue
        for table, column in kept.parts:
            mine = list(table.primary_key.columns)
            some = select(*mine).where(table.c[column] == name).limit(piece - gone)
            gone += tx.delete(table, tuple_(*mine).in_(some))
            if gone >= piece:
                return Purged(gone, more=True)
        gone += tx.delete(kept.table, key == name)
        if gone >= piece:
            return Purged(gone, more=True)
    return Purged(gone, more=False)
