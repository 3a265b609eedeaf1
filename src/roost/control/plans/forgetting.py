"""Forget plans that ended long ago, and end drafts that nobody applied.

Plans are folded from events, so what is deleted is said in one, `plan.forgotten`: every process and
every copy of the ledger forgets the same.
"""

import logging

from sqlalchemy import Connection, bindparam, select

from roost.base.errors import Conflict, NotFound
from roost.control.plans import writing
from roost.control.plans.record import CANCELLED, OVER, PLANNED
from roost.ledger.schema.tables import plans
from roost.ledger.store import Store
from roost.ledger.upkeep.retention import DAY_S
from roost.ledger.writes.transaction import Tx
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.plans")

#: How long a plan is kept after its end, and a draft that nobody applies before it is ended.
KEPT_S = 30 * DAY_S
#: How often it is looked for old ones.
FORGET_EVERY_S = 3600.0
#: Plans that one look forgets; each may have thousands of moves.
_PIECE = 10

_OLD = (
    select(plans.c.id)
    .where(plans.c.state.in_(OVER), plans.c.ended_ms <= bindparam("until"))
    .order_by(plans.c.ended_ms, plans.c.id)
    .limit(_PIECE)
)
_STALE = (
    select(plans.c.id)
    .where(plans.c.state == PLANNED, plans.c.created_ms <= bindparam("until"))
    .order_by(plans.c.created_ms, plans.c.id)
    .limit(_PIECE)
)


class PlanRetention:
    """Deletes what was kept long enough, where the lease of plans is held."""

    def __init__(self, store: Store, singleton: Singleton, keep_s: int = KEPT_S) -> None:
        self._store, self._singleton, self._keep_s = store, singleton, keep_s

    async def forget_old(self, now_ms: int) -> bool:
        """Forget a piece of what is too old; say whether there may be more."""
        until = {"until": now_ms - 1000 * self._keep_s}

        def old(connection: Connection) -> tuple[list[str], list[str]]:
            ended = connection.execute(_OLD, until).scalars().all()
            stale = connection.execute(_STALE, until).scalars().all()
            return list(ended), list(stale)

        ended, stale = await self._store.read(old)
        for plan in stale:
            await self._store.write(lambda tx: self._end(tx, plan))  # noqa: B023
        for plan in ended:
            await self._store.write(lambda tx: self._forget(tx, plan))  # noqa: B023
        if ended or stale:
            log.info("%d old plans are forgotten, %d drafts ended", len(ended), len(stale))
        return max(len(ended), len(stale)) >= _PIECE

    def _forget(self, tx: Tx, plan: str) -> None:
        self._singleton.check(tx)
        try:
            row = writing.locked_plan(tx, plan)
        except NotFound:
            return  # a new plan has taken its room
        if row.state not in OVER:
            raise Conflict(f"plan {plan!r} is {row.state}", plan=plan)
        writing.remove(tx, plan)

    def _end(self, tx: Tx, plan: str) -> None:
        self._singleton.check(tx)
        row = writing.locked_plan(tx, plan)
        if row.state == PLANNED:
            days = self._keep_s // DAY_S
            writing.end(tx, row, CANCELLED, f"nobody applied it for {days} days")
