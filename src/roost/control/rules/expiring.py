"""A rule that has expired stops to hold, one for a VM that is gone is deleted, in one process.

Nobody else looks at the time: the rule holds until it is disabled in the ledger, as a version of
its own with an event, so that every decision knows whether it was made before or after.
"""

from sqlalchemy import Connection, bindparam, exists, func, select

from roost.base.clock import Clock
from roost.control.rules.writing import remove, update
from roost.ledger.schema.changes import CONSTRAINTS, VMS
from roost.ledger.schema.rows import ConstraintRow
from roost.ledger.schema.tables import constraints, vms
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton

_LOOK_S = 5.0
#: Rules that one transaction ends.
_PIECE = 100
_EXPIRED = (
    select(constraints.c.id)
    .where(constraints.c.enabled, constraints.c.expires_ms <= bindparam("now"))
    .order_by(constraints.c.id)
    .limit(_PIECE)
)
_NEXT = select(func.min(constraints.c.expires_ms)).where(constraints.c.enabled)
_FOR_NOBODY = (
    select(constraints.c.id)
    .where(constraints.c.vm != "", ~exists().where(vms.c.id == constraints.c.vm))
    .order_by(constraints.c.id)
    .limit(_PIECE)
)


class ExpiredRules(Part):
    """Disables constraints whose time is over, and deletes those for VMs that are gone."""

    singleton: Singleton
    look_s = _LOOK_S
    wakes = (CONSTRAINTS, VMS)

    def __init__(self, store: Store, clock: Clock, singleton: Singleton) -> None:
        self._store, self._clock, self.singleton = store, clock, singleton
        self._next_ms: int | None = 0  # when the next expires, as far as the last look has seen

    def is_due(self) -> bool:
        """Say whether a rule has expired; the wall clock is asked each time, for it jumps."""
        return self._next_ms is not None and self._clock.wall_ms() >= self._next_ms

    async def look(self) -> None:
        """Disable the rules that have expired; delete those that are for nobody."""
        now = self._clock.wall_ms()

        def question(connection: Connection) -> tuple[list[str], list[str], int | None]:
            expired = list(connection.execute(_EXPIRED, {"now": now}).scalars())
            for_nobody = list(connection.execute(_FOR_NOBODY).scalars())
            more = expired or for_nobody  # or what is found now may not be ended yet
            return expired, for_nobody, now if more else connection.execute(_NEXT).scalar()

        expired, for_nobody, self._next_ms = await self._store.read(question)
        if expired:
            await self._store.write(lambda tx: self._end(tx, expired, now))
        if for_nobody:
            await self._store.write(lambda tx: self._remove(tx, for_nobody))

    def _end(self, tx: Tx, ids: list[str], now: int) -> None:
        self.singleton.check(tx)
        if release_before_may_be_here(tx.connection):
            return  # such a process does not follow it
        for key in ids:
            row = tx.find(constraints, lock=True, id=key)
            if row is None or not row["enabled"] or (row["expires_ms"] or now + 1) > now:
                continue
            update(tx, ConstraintRow(**row), "constraint.expired", enabled=False)

    def _remove(self, tx: Tx, ids: list[str]) -> None:
        self.singleton.check(tx)
        if release_before_may_be_here(tx.connection):
            return
        for key in ids:
            row = tx.find(constraints, lock=True, id=key)
            # No VM ever has the id of one that is gone.
            if row is not None and tx.find(vms, id=row["vm"]) is None:
                remove(tx, ConstraintRow(**row))
