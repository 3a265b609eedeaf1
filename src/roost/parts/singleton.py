"""A lease that one process at a time holds, for work that must not be done twice at once.

Clocks are never compared between machines: a process that wants the lease watches the renewals
counter and takes over when it has not moved for the lease's length on its own monotonic clock.
Every change of holder moves the token, and a holder's transactions check the token in the ledger,
so one that was stopped for an hour and wakes up can commit nothing.
"""

from sqlalchemy import bindparam, select, text

from roost.base.clock import Clock
from roost.base.errors import Conflict
from roost.ledger.store import Store
from roost.ledger.tables import leases
from roost.ledger.transaction import Tx

# SQLite and PostgreSQL spell this alike.
_INSERT = text(
    "INSERT INTO leases (name, holder, token, renewals) VALUES (:name, :holder, 1, 0) "
    "ON CONFLICT DO NOTHING"
)
_CHECK = select(leases.c.token).where(leases.c.name == bindparam("lease"))
_CHECK = _CHECK.with_for_update(read=True)


class NotHolder(Conflict):
    """Another process holds the lease now."""


class Singleton:
    """One process's wish for one lease."""

    def __init__(
        self, store: Store, clock: Clock, name: str, holder: str, *, length_s: float = 15.0
    ) -> None:
        self._store, self._clock = store, clock
        self.name, self.holder, self.length_s = name, holder, length_s
        self.token: int | None = None
        self._seen: tuple[int, int] | None = None  # token and renewals of somebody else
        self._since = 0.0

    async def tick(self) -> bool:
        """Renew the lease, or take it when its holder is silent; say whether it is ours."""
        token, silent = self.token, self._silent()
        row = await self._store.write(lambda tx: self._try(tx, token, silent), self.holder)
        if row is not None:
            self.token = row
            return True
        self.token = None
        return False

    def _silent(self) -> tuple[int, int] | None:
        """Return what was seen of a holder that has been silent for too long."""
        if self._seen is None or self._clock.monotonic() - self._since < self.length_s:
            return None
        return self._seen

    def _try(self, tx: Tx, token: int | None, silent: tuple[int, int] | None) -> int | None:
        found = tx.find(leases, name=self.name, lock=True)
        if found is None:
            row = {"name": self.name, "holder": self.holder}
            if tx.connection.execute(_INSERT, row).rowcount == 1:
                return 1
            # Another process was first, just now.
            found = tx.find(leases, name=self.name, lock=True)
            assert found is not None
        mine = token is not None and found["token"] == token
        if mine or (silent is not None and silent == (found["token"], found["renewals"])):
            new = found["token"] if mine else found["token"] + 1
            tx.change(
                leases,
                {"name": self.name},
                holder=self.holder,
                token=new,
                renewals=found["renewals"] + 1,
            )
            return int(new)
        seen = (found["token"], found["renewals"])
        if seen != self._seen:
            self._seen, self._since = seen, self._clock.monotonic()
        return None

    def check(self, tx: Tx) -> None:
        """Refuse to go on in a transaction unless the lease is still ours."""
        found = tx.row(_CHECK, lease=self.name)
        if self.token is None or found is None or found["token"] != self.token:
            raise NotHolder(f"another process holds the lease {self.name!r}")
