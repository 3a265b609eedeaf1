"""Idempotency keys: the same key with the same request gives the first answer again.

A key belongs to a scope (whose it is, and of what kind of request). It is kept with a digest of the
request and the answer, in the transaction that does what was asked; retention deletes it later.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, select, text

from roost.base.errors import Conflict
from roost.ledger.schema.tables import idempotency
from roost.ledger.store import Store
from roost.ledger.upkeep.retention import HOUR_S, Kept
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part

# SQLite and PostgreSQL spell this alike. Losing a race must not raise: with SQLite an error would
# fail everybody who shares the commit.
_INSERT = text(
    "INSERT INTO idempotency (scope, key, digest, answer, created_ms) "
    "VALUES (:scope, :key, :digest, :answer, :created_ms) ON CONFLICT DO NOTHING"
)
#: Keys that one query asks for.
_MOST_ASKED = 500


class Keys(Part):
    """The keys that were used, for as long as somebody may ask again."""

    keeps = (Kept(idempotency, "created_ms", seconds=24 * HOUR_S),)


class UsedKey(NamedTuple):
    """What a key was used for: the digest of the request, and what was answered."""

    digest: str
    answer: str


async def find_keys(
    store: Store, keys: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], UsedKey]:
    """Return those of some keys, each with its scope, that were used before."""
    wanted = list(keys)

    def question(connection: Connection) -> dict[tuple[str, str], UsedKey]:
        found = {}
        for start in range(0, len(wanted), _MOST_ASKED):
            some = wanted[start : start + _MOST_ASKED]
            query = select(idempotency).where(
                idempotency.c.scope.in_({scope for scope, _ in some}),
                idempotency.c.key.in_({key for _, key in some}),
            )
            for row in connection.execute(query):
                found[row.scope, row.key] = UsedKey(row.digest, row.answer)
        return found

    return await store.read(question)


def use_key(tx: Tx, scope: str, key: str | None, digest: str, answer: str) -> str | None:
    """Take a key, or return what was answered when the same request took it before."""
    if key is None:
        return None
    row = {"scope": scope, "key": key, "digest": digest, "answer": answer, "created_ms": tx.at_ms}
    if tx.connection.execute(_INSERT, row).rowcount == 1:
        return None
    found = tx.find(idempotency, scope=scope, key=key)
    if found is None or found["digest"] != digest:
        raise Conflict(
            "this idempotency key was used for another request",
            hint="Maybe make a new key for each new request.",
            key=key,
        )
    return str(found["answer"])
