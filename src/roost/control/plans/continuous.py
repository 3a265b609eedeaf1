"""Continuous mode, off by default: look at the fleet now and then; recommend plans or apply them.

    every so often, one process for all (the lease `continuous`)
      a plan is open, or enough has moved today --> nothing
      a goal wants moves, at this look and the last --> a plan: kept as a draft, or applied

What keeps it from chasing load around a fleet: a look that finds something is not believed before
the next one finds it too; VMs rest after every move, the longer the more they moved in a day, even
where a broken rule would let an operator's plan move them; no VM moves more than so often in a day;
and the fleet not more than so often. The plans are ordinary ones: shown, paused, cancelled.
"""

import logging
from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Connection, select

from roost.base.clock import Clock
from roost.base.errors import Conflict
from roost.base.ids import IdSource
from roost.base.timestamps import timestamp
from roost.control.memory.restore_detect import Lineage
from roost.control.plans import writing
from roost.control.plans.continuouslimits import APPLY, AUTHOR, OFF, ContinuousLimits
from roost.control.plans.daymoves import DayMoves, day_moves
from roost.control.plans.planning import Planning
from roost.control.plans.reading import listed, taken_vms
from roost.control.plans.record import (
    CANCELLED,
    OVER,
    PLANNED,
    WAITING,
    Asked,
    found_in,
)
from roost.control.plans.routes import continuous_routes
from roost.ledger.schema.rows import PlanRow
from roost.ledger.schema.tables import plans
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx, row_json
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.parts.singleton import Singleton
from roost.planner.drafting import Draft
from roost.wire.plans import ContinuousBody, ListPlans

log = logging.getLogger("roost.plans")

#: How many looks in a row must find something before it is believed.
LOOKS = 2
#: How long a draft of its own stands before a newer look replaces it.
FRESH_S = 3600
#: Plans of its own that are told.
_TOLD = 10

#: Plans of others that are not over, drafts aside, and its own drafts.
_BUSY = select(plans.c.id).where(plans.c.state.not_in((*OVER, PLANNED))).limit(1)
_OWN = select(plans.c.id).where(plans.c.state == PLANNED, plans.c.created_by == AUTHOR)


class Continuous(Part):
    """Plans by itself, within limits."""

    singleton: Singleton

    def __init__(
        self,
        store: Store,
        planning: Planning,
        lineage: Lineage,
        singleton: Singleton,
        clock: Clock,
        ids: IdSource,
        limits: ContinuousLimits,
    ) -> None:
        self._store, self._planning, self._lineage = store, planning, lineage
        self._clock, self._ids, self.limits = clock, ids, limits
        self.singleton, self.look_s = singleton, limits.every_s
        self._found: Counter[str] = Counter()  # looks in a row at which a goal wanted moves
        self.said, self._looked_ms = "", 0  # at the last look of this process

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return continuous_routes(self)

    async def may_look(self) -> bool:
        """Allow looking when it is on, and the ledger is known not to be an old copy."""
        return self.limits.mode != OFF and await self._lineage.is_sure()

    def gained(self) -> None:
        """Believe nothing that was found before another process looked."""
        self._found.clear()

    async def look(self) -> None:
        """Look at every goal in turn, and plan for the first that wants something twice."""
        self._looked_ms = self._clock.wall_ms()
        self.said = await self._look()
        log.info("continuous mode: %s", self.said)

    async def _look(self) -> str:
        now_ms = self._clock.wall_ms()

        def ask(connection: Connection) -> tuple[str, DayMoves, frozenset[str]]:
            return _busy(connection), day_moves(connection, now_ms), taken_vms(connection)

        busy, moved, taken = await self._store.read(ask)
        if busy:
            self._found.clear()
            return f"plan {busy!r} is open"
        limits = self.limits
        left, held = moved.left(limits), moved.held(limits)
        if left <= 0:
            return f"{moved.own} VMs were moved in a day, and {limits.day} may be"
        told = []
        for goal in limits.goals:
            most = min(limits.most, left)
            asked = Asked(goal, most=most, at_once=limits.at_once, per_host=1, urgent=False)
            draft = await self._planning.draft(asked, taken=taken, held=held, refusable=False)
            if not draft.moves:
                self._found[goal] = 0
                continue
            self._found[goal] += 1
            if self._found[goal] < LOOKS:
                count = len(draft.moves)
                told.append(f"{goal} would move {count} VMs, if the next look says so too")
                continue
            self._found.clear()
            return await self._keep(asked, draft)
        return "; ".join(told) or "no goal wants anything moved"

    async def _keep(self, asked: Asked, draft: Draft) -> str:
        """Keep a plan, as a draft or applied; its last draft makes room for it."""
        state = WAITING if self.limits.mode == APPLY else PLANNED
        row = PlanRow(
            id=self._ids.new("plan"),
            goal=asked.goal,
            state=state,
            generation=1,
            asked=row_json(asked),
            found=row_json(found_in(draft, self._planning.host_names())),
            wave=0,
            replans=0,
            why="",
            starts_ms=None,
            ends_ms=None,
            created_ms=self._clock.wall_ms(),
            created_by=AUTHOR,
            begun_ms=None,
            ended_ms=None,
        )
        moves = self._planning.rows(row.id, draft)

        def change(tx: Tx) -> str:
            self.singleton.check(tx)
            if busy := _busy(tx.connection):
                raise Conflict(f"plan {busy!r} is open", plan=busy)
            for old in tx.connection.execute(_OWN).scalars().all():
                last = writing.locked_plan(tx, old)
                fresh = row.created_ms - last.created_ms < 1000 * FRESH_S
                if state == PLANNED and last.goal == row.goal and fresh:
                    return last.id
                if last.state == PLANNED:
                    writing.end(tx, last, CANCELLED, "a newer look found something else")
            writing.insert(tx, row, moves)
            return row.id

        try:
            kept = await self._store.write(change, AUTHOR)
        except Conflict as error:
            return error.message
        done = "applied" if state == WAITING else "recommended"
        return f"plan {kept!r} is {done}: {asked.goal}, {len(moves)} moves"

    async def get(self) -> ContinuousBody:
        """Return how it is set, what the last look said, and its last plans."""
        asked = ListPlans(limit=_TOLD, created_by=AUTHOR)
        found = await self._store.read(lambda connection: listed(connection, asked))
        limits = self.limits
        return ContinuousBody(
            mode=limits.mode,
            goals=list(limits.goals),
            every_s=limits.every_s,
            most=limits.most,
            vm_day=limits.vm_day,
            day=limits.day,
            looks_here=self.singleton.token is not None and limits.mode != OFF,
            looked_at=timestamp(self._looked_ms) if self._looked_ms else None,
            said=self.said,
            plans=found.plans,
        )


def _busy(connection: Connection) -> str:
    return connection.execute(_BUSY).scalar() or ""
