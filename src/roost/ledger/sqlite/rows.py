"""Many rows in few statements, for SQLite.

Python lets go of its lock around every step of a statement and must win it back from a busy event
loop each time. One statement with hundreds of rows is one step: the writer thread then works beside
the loop instead of against it (measured: 1,400 creates a second row by row, see ADR-0011).
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from roost.ledger.claims.capacity import Charge

#: Rows of one statement. Few sizes, so that the prepared statements are used again.
_SIZES = (256, 64, 16, 4, 1)


def pieces(count: int, columns: int) -> Iterator[tuple[int, int]]:
    """Cut a number of rows into (start, length) pieces of the few sizes."""
    most = 32_000 // columns  # SQLite's limit of parameters is 32,766
    start = 0
    while start < count:
        length = next(size for size in _SIZES if size <= min(count - start, most))
        yield start, length
        start += length


@lru_cache(maxsize=512)
def _insert(table: str, columns: tuple[str, ...], rows: int, ignore: bool) -> str:
    verb = "INSERT OR IGNORE" if ignore else "INSERT"
    row = f"({', '.join('?' * len(columns))})"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * rows)}"


def insert_rows(
    cursor: sqlite3.Cursor,
    table: str,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[Any]],
    *,
    ignore: bool = False,
) -> int:
    """Insert rows and return how many; with `ignore` those that exist already are left out."""
    inserted = 0
    for start, length in pieces(len(rows), len(columns)):
        part = rows if length == len(rows) else rows[start : start + length]
        cursor.execute(_insert(table, columns, length, ignore), tuple(chain.from_iterable(part)))
        inserted += cursor.rowcount
    return inserted


@lru_cache(maxsize=64)
def _charge(charge: Charge, rows: int) -> str:
    row = f"({', '.join('?' * len(charge.columns))})"
    columns = ", ".join(f"column{at} AS {name}" for at, name in enumerate(charge.columns, 1))
    return charge.of(f"(SELECT {columns} FROM (VALUES {', '.join([row] * rows)}))")


def charge_rows(cursor: sqlite3.Cursor, charge: Charge, rows: Sequence[Sequence[Any]]) -> int:
    """Change the sums of different keys and return how many were changed."""
    changed = 0
    for start, length in pieces(len(rows), len(charge.columns)):
        part = rows[start : start + length]
        cursor.execute(_charge(charge, length), tuple(chain.from_iterable(part)))
        changed += cursor.rowcount
    return changed
