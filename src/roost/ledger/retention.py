"""Delete what was kept for a while, piece by piece. Whoever owns rows says how long (`Part.keeps`).

None of it is folded from events, so nothing is said of it there. `surplus` looks, as a reader whom
no writer waits for, at what is more than wanted; `purge` deletes a bounded piece of that and of
what is too old. Call them again while there is `more`. Tombstones stay until the agent has acted on
them; events end another way (`base`).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, func, select, tuple_

from roost.ledger.transaction import Tx

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
    age: str
    seconds: int
    most: int | None = None  # of the whole table, the youngest
    newest: Newest | None = None


@dataclass(frozen=True, slots=True)
class Surplus:
    """What is more than wanted: rows by their keys, and all up to a moment."""

    keys: tuple[tuple[Any, ...], ...] = ()
    until_ms: int = -1


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows are gone, and whether there may be more to delete."""

    rows: int
    more: bool


def surplus(connection: Connection, kept: Kept, piece: int) -> Surplus:
    """Find rows beyond the limits, a piece of them at most."""
    keys: tuple[tuple[Any, ...], ...] = ()
    until = None
    if kept.newest is not None:
        of, by = kept.table.c[kept.newest.of], kept.table.c[kept.newest.by]
        place = func.row_number().over(partition_by=of, order_by=by.desc()).label("place")
        ranked = select(of, by, place).subquery()
        too_many = select(*list(ranked.c)[:2]).where(ranked.c.place > kept.newest.most)
        keys = tuple(tuple(row) for row in connection.execute(too_many.limit(piece)))
    if kept.most is not None:
        age = kept.table.c[kept.age]
        first_too_old = select(age).order_by(age.desc()).offset(kept.most).limit(1)
        until = connection.execute(first_too_old).scalar()
    return Surplus(keys, -1 if until is None else until)


def purge(tx: Tx, kept: Kept, now_ms: int, piece: int, seen: Surplus | None = None) -> Purged:
    """Delete a piece of the rows that are too old, and of those beyond the limits."""
    seen = seen or Surplus()
    table, age = kept.table, kept.table.c[kept.age]
    until_ms = max(now_ms - 1000 * kept.seconds, seen.until_ms)
    key: list[Any] = list(table.primary_key.columns)
    oldest = select(*key).where(age <= until_ms).order_by(age).limit(piece)
    old = tx.delete(table, tuple_(*key).in_(oldest))
    many = 0
    if seen.keys:
        assert kept.newest is not None
        pair = tuple_(table.c[kept.newest.of], table.c[kept.newest.by])
        many = tx.delete(table, pair.in_(seen.keys))
    return Purged(old + many, more=max(old, len(seen.keys)) >= piece)
