"""Leases that one process at a time holds, for work that must not be done twice at once.

Each part that acts for all has a lease of its own name, so different processes may hold different
ones. Clocks are never compared between machines: a process that wants a lease watches its renewals
and takes over when they have not moved for the lease's length on its own monotonic clock. Every
change of holder moves the token, and a holder's transactions check the token in the ledger, so one
that was stopped for an hour and wakes up can commit nothing.

Processes of the first release have one lease for everything, `keeper`, and may run beside this one
during an upgrade. So that never both act, a process of this release holds its leases only while
`keeper` is held by a process of this release, itself or another: their holders' names begin with
`plane2-`. It is renewed, taken over and checked together with the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, text, update

from roost.base.clock import Clock
from roost.base.errors import Conflict
from roost.ledger.schema.tables import leases
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx

#: The lease that processes of the first release hold for all that one process does.
GATE = "keeper"
#: What the names of holders begin with since each part has a lease of its own.
HOLDER = "plane2"

# SQLite and PostgreSQL spell this alike.
_INSERT = text(
    "INSERT INTO leases (name, holder, token, renewals) VALUES (:name, :holder, :token, :renewals) "
    "ON CONFLICT DO NOTHING"
)
_NAMED = (
    select(leases)
    .where(leases.c.name.in_(bindparam("names", expanding=True)))
    .order_by(leases.c.name)  # everybody locks in this order
)
_LOCK, _CHECK = _NAMED.with_for_update(), _NAMED.with_for_update(read=True)
_RENEW = (
    update(leases)
    .where(leases.c.name.in_(bindparam("names", expanding=True)))
    .values(renewals=leases.c.renewals + 1)
)
Rows = dict[str, dict[str, Any]]


class NotHolder(Conflict):
    """Another process holds the lease now."""


class Singleton:
    """A lease that this process wants; `token` is None while another process holds it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.token: int | None = None

    def check(self, tx: Tx) -> None:
        """Fence a transaction: raise NotHolder unless this process still holds the lease."""
        found = _by_name(tx.rows(_CHECK, names=sorted((GATE, self.name))))
        row = found.get(self.name)
        if self.token is None or row is None or row["token"] != self.token or not _is_open(found):
            raise NotHolder(f"another process holds the lease {self.name!r}")


@dataclass(frozen=True, slots=True)
class _Seen:
    """The token and renewals of another holder, and since when they stand still."""

    token: int
    renewals: int
    since: float


class Leases:
    """All leases that one process wants, renewed together in one transaction."""

    def __init__(self, store: Store, clock: Clock, holder: str, *, length_s: float = 15.0) -> None:
        if not holder.startswith(f"{HOLDER}-"):
            raise ValueError(
                f"{holder!r} cannot hold leases: its name does not begin with {HOLDER}-"
            )
        self._store, self._clock = store, clock
        self.holder, self.length_s = holder, length_s
        self._gate = Singleton(GATE)
        self._wishes = {GATE: self._gate}
        self._others: dict[str, _Seen] = {}

    def singleton(self, name: str) -> Singleton:
        """Return the lease of this name, registered as wanted; the same object each time."""
        return self._wishes.setdefault(name, Singleton(name))

    @property
    def held(self) -> int:
        """Return how many leases this process holds."""
        return sum(wish.token is not None for wish in self._wishes.values())

    async def tick(self) -> None:
        """Renew the leases held here, and take over those whose holder is silent."""
        held = {name: wish.token for name, wish in self._wishes.items() if wish.token is not None}
        now = self._clock.monotonic()
        silent = {
            name: (seen.token, seen.renewals)
            for name, seen in self._others.items()
            if now - seen.since >= self.length_s
        }
        ours, others = await self._store.write(lambda tx: self._try(tx, held, silent), self.holder)
        now = self._clock.monotonic()
        for name, wish in self._wishes.items():
            wish.token = ours.get(name)
            row, seen = others.get(name), self._others.pop(name, None)
            if row is None:
                continue
            if seen is None or (seen.token, seen.renewals) != (row["token"], row["renewals"]):
                seen = _Seen(row["token"], row["renewals"], now)
            self._others[name] = seen

    def _try(
        self, tx: Tx, held: Mapping[str, int], silent: Mapping[str, tuple[int, int]]
    ) -> tuple[dict[str, int], Rows]:
        """Renew and take leases in a transaction; return our tokens, and the rows of the others."""
        rows = _by_name(tx.rows(_LOCK, names=sorted(self._wishes)))
        ours: dict[str, int] = {}
        for name in (GATE, *sorted(self._wishes.keys() - {GATE})):
            if name != GATE and not _is_open(rows):
                break
            row = rows.get(name)
            if row is None:
                new = {"name": name, "holder": self.holder, "token": 1, "renewals": 0}
                if tx.connection.execute(_INSERT, new).rowcount == 1:
                    ours[name], rows[name] = 1, new
                    continue
                row = rows[name] = _by_name(tx.rows(_LOCK, names=[name]))[name]  # another's, now
            if held.get(name) == row["token"]:
                ours[name] = row["token"]
            elif silent.get(name) == (row["token"], row["renewals"]):
                ours[name] = row["token"] + 1
                tx.change(leases, {"name": name}, holder=self.holder, token=ours[name])
                rows[name] = {**row, "holder": self.holder}
        if ours:
            tx.connection.execute(_RENEW, {"names": sorted(ours)})
        return ours, {name: row for name, row in rows.items() if name not in ours}


def _by_name(rows: list[dict[str, Any]]) -> Rows:
    return {row["name"]: row for row in rows}


def _is_open(rows: Rows) -> bool:
    """Say whether the lease of the first release is held by a process of this one."""
    return GATE in rows and str(rows[GATE]["holder"]).startswith(f"{HOLDER}-")
