"""The owner's tag: the one name that all machines of this ledger carry at their providers.

The detector gives back what carries its tag and is in no row, so no two control planes may ever
have the same: the name is drawn once and kept in the ledger, whoever asks first. It does not come
from where the ledger lies, which is the same path on many servers and another one after a move.
"""

from hashlib import sha256

from sqlalchemy import Connection, select, text

from roost.base.ids import IdSource
from roost.ledger.schema.tables import counters
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx

_NAME = "machines_owner"
# SQLite and PostgreSQL spell this alike.
_KEEP = text("INSERT INTO counters (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING")
_KEPT = select(counters.c.value).where(counters.c.name == _NAME)


class Owner:
    """The owner's tag of one ledger, read or drawn when it is first asked for."""

    def __init__(self, store: Store, ids: IdSource) -> None:
        self._store, self._ids = store, ids
        self._tag: str | None = None

    async def tag(self) -> str:
        """Return the tag."""
        if self._tag is None:
            found = await self._store.read(_read)
            if found is None:
                found = await self._store.write(self._draw, "jobs")
            self._tag = f"roost-{found:016x}"
        return self._tag

    def _draw(self, tx: Tx) -> int:
        drawn = sha256(self._ids.new("owner").encode()).digest()[:8]
        value = int.from_bytes(drawn, "big") >> 1  # the ledger's numbers have a sign
        tx.connection.execute(_KEEP, {"name": _NAME, "value": value})
        kept = _read(tx.connection)  # another process may have been quicker
        assert kept is not None
        return kept


def _read(connection: Connection) -> int | None:
    found = connection.execute(_KEPT).scalar()
    return None if found is None else int(found)
