"""Forget what was kept for a while: idempotency keys, decisions and samples.

None of it is folded from events, so nothing is said of it there. `surplus` looks, as a reader whom
no writer waits for, at what is more than wanted; `purge` deletes a bounded piece of that and of
what is too old. Call them again while there is `more`. Tombstones stay until the agent has acted on
them, events stay for good.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, func, select, tuple_

from roost.ledger.tables import decisions, idempotency, samples
from roost.ledger.transaction import Tx

_HOUR_S, _DAY_S = 3600, 86_400


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long, and how many of each; `piece` is the most that one call deletes of a table."""

    idempotency_s: int = 24 * _HOUR_S
    decisions_s: int = 30 * _DAY_S
    decisions_per_vm: int = 20
    samples_s: int = 7 * _DAY_S
    most_samples: int = 5_000_000
    piece: int = 2000


@dataclass(frozen=True, slots=True)
class Surplus:
    """What is more than wanted: decisions by VM and snapshot, samples up to a moment."""

    decisions: tuple[tuple[str, int], ...] = ()
    samples_until_ms: int = -1


@dataclass(frozen=True, slots=True)
class Purged:
    """How many rows are gone, and whether there may be more to delete."""

    idempotency: int
    decisions: int
    samples: int
    more: bool


def surplus(connection: Connection, settings: RetentionSettings) -> Surplus:
    """Find what is more than wanted, a piece of it at most."""
    newest_first = func.row_number().over(
        partition_by=decisions.c.vm, order_by=decisions.c.snapshot.desc()
    )
    ranked = select(decisions.c.vm, decisions.c.snapshot, newest_first.label("place")).subquery()
    too_many = (
        select(ranked.c.vm, ranked.c.snapshot)
        .where(ranked.c.place > settings.decisions_per_vm)
        .limit(settings.piece)
    )
    first_too_old = (
        select(samples.c.at_ms)
        .order_by(samples.c.at_ms.desc())
        .offset(settings.most_samples)
        .limit(1)
    )
    until = connection.execute(first_too_old).scalar()
    return Surplus(
        decisions=tuple((row.vm, row.snapshot) for row in connection.execute(too_many)),
        samples_until_ms=-1 if until is None else until,
    )


def purge(tx: Tx, now_ms: int, settings: RetentionSettings, seen: Surplus | None = None) -> Purged:
    """Delete a piece of what is too old, and of what is more than wanted."""
    seen = seen or Surplus()
    piece = settings.piece
    keys = _until(tx, idempotency, "created_ms", now_ms - 1000 * settings.idempotency_s, piece)
    old = _until(tx, decisions, "at_ms", now_ms - 1000 * settings.decisions_s, piece)
    limit_ms = max(now_ms - 1000 * settings.samples_s, seen.samples_until_ms)
    readings = _until(tx, samples, "at_ms", limit_ms, piece)
    many = 0
    if seen.decisions:
        key = tuple_(decisions.c.vm, decisions.c.snapshot)
        many = tx.delete(decisions, key.in_(seen.decisions))
    return Purged(
        idempotency=keys,
        decisions=old + many,
        samples=readings,
        more=max(keys, old, readings, len(seen.decisions)) >= piece,
    )


def _until(tx: Tx, table: Table, age: str, until_ms: int, piece: int) -> int:
    """Delete the oldest rows up to a moment."""
    key: list[Any] = list(table.primary_key.columns)
    oldest = select(*key).where(table.c[age] <= until_ms).order_by(table.c[age]).limit(piece)
    return tx.delete(table, tuple_(*key).in_(oldest))
