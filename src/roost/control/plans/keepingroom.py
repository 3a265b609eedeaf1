"""Keep the room that plans will need: holds on the targets of moves that have not begun.

    wanted = moves that wait, of plans that were applied    kept = holds of the kind `plan`

The process that carries plans out compares the two at every look and writes the difference, so what
a dead process has left is kept or given back by the next one. A move gives its hold back in the
transaction that claims its target (`hold_of`). Room that an earlier wave is to leave is not there
yet: its hold grows as claims on that host are given back (`ledger/claims/makingroom.py`).
"""

import operator
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, bindparam, select

from roost.control.memory.roster import Roster
from roost.control.plans.record import PAUSED, PLANNED, RUNNING, WAITING
from roost.ledger.claims.makingroom import (
    PLAN,
    hold_for_moves,
    planned_id,
    planned_owner,
    waiting_vm,
)
from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.rows import HoldRow, PlanMoveRow
from roost.ledger.schema.tables import holds, plan_moves, plans, vms
from roost.ledger.store import Store
from roost.ledger.upgrade.older import (
    counters_held_may_be_unknown,
    release_before_may_be_here,
)
from roost.ledger.writes.statements import find_row, find_rows
from roost.ledger.writes.transaction import Tx

#: Holds that one transaction writes: their hosts are locked together.
_PIECE = 50

_KEPT = select(holds).where(holds.c.kind == PLAN).order_by(holds.c.id)
_WANTED = (
    select(plan_moves, plans.c.starts_ms)
    .join(plans, plans.c.id == plan_moves.c.plan)
    .join(vms, (vms.c.id == plan_moves.c.vm) & (vms.c.desired != "absent"))
    .where(plans.c.state.in_((WAITING, RUNNING, PAUSED)), plan_moves.c.state == PLANNED)
    .order_by(plan_moves.c.plan, plan_moves.c.number)
)
_AMOUNTS = select(vms.c.id, *(vms.c[name] for name in LIMITS[:-1])).where(
    vms.c.id.in_(bindparam("ids", expanding=True))
)


class KeepingRoom:
    """Holds room for plans; for the process that carries them out."""

    def __init__(self, store: Store, roster: Roster) -> None:
        self._store, self._roster = store, roster

    async def converge(self, check: Callable[[Tx], None]) -> bool:
        """Hold room for every move that waits, and give all other back; say whether any is held.

        `check` is asked in every transaction, and forbids it by raising.
        """
        wanted, kept = await self._store.read(self._look)
        put, gone = set(wanted) - set(kept), set(kept) - set(wanted)
        for plan in sorted({_plan_of(hold) for hold in (*put, *gone)}):
            fresh = [wanted[hold] for hold in wanted if hold in put and _plan_of(hold) == plan]
            stale = [kept[hold] for hold in sorted(gone) if _plan_of(hold) == plan]
            for first in range(0, max(len(fresh), len(stale)), _PIECE):
                piece = slice(first, first + _PIECE)
                await self._store.write(
                    lambda tx: _write(tx, plan, fresh[piece], stale[piece], check)  # noqa: B023
                )
        return bool(wanted)

    def _look(self, connection: Connection) -> tuple[dict[str, HoldRow], dict[str, HoldRow]]:
        """Return what is to be held, in the order of moves, and what is held, by id."""
        found = connection.execute(_KEPT).mappings()
        kept = {row["id"]: HoldRow(**row) for row in found}
        # A process of the release before may be the next to carry plans out: it knows no such
        # holds, and would find its targets full of them.
        if release_before_may_be_here(connection) or counters_held_may_be_unknown(connection):
            return {}, kept
        moves = (dict(row) for row in connection.execute(_WANTED).mappings())
        wanted = (_hold(row.pop("starts_ms"), PlanMoveRow(**row)) for row in moves)
        return {row.id: row for row in wanted if row.host in self._roster.hosts}, kept


def hold_of(connection: Connection, move: PlanMoveRow) -> HoldRow | None:
    """Return what is held for a move; None when nothing is."""
    found = find_row(connection, holds, {"id": _id(move)})
    return None if found is None else HoldRow(**found)


def count_held(connection: Connection, plan: str) -> int:
    """Count the moves of a plan for which all the room is held that their VMs take."""
    found = find_rows(connection, holds, {"owner": planned_owner(plan)})
    rows = {row["id"]: HoldRow(**row) for row in found}
    asked = connection.execute(_AMOUNTS, {"ids": sorted({waiting_vm(hold) for hold in rows})})
    wanted = {vm: (*amounts, 1) for vm, *amounts in asked}
    return sum(
        (vm := waiting_vm(hold)) in wanted and all(map(operator.ge, row.limits, wanted[vm]))
        for hold, row in rows.items()
    )


def _id(move: PlanMoveRow) -> str:
    return planned_id(move.plan, move.number, move.vm)


def _plan_of(hold: str) -> str:
    return hold.split("/")[1]


def _hold(starts_ms: int | None, move: PlanMoveRow) -> HoldRow:
    """Return an empty hold of a move: how much is held is seen when its host is locked."""
    return HoldRow(
        id=_id(move),
        host=move.target,
        kind=PLAN,
        owner=planned_owner(move.plan),
        windows=f"[[{starts_ms or 0},null]]",
    )


def _write(
    tx: Tx,
    plan: str,
    fresh: Sequence[HoldRow],
    stale: Sequence[HoldRow],
    check: Callable[[Tx], None],
) -> None:
    check(tx)
    there = [row for row in stale if tx.find(holds, id=row.id) is not None]
    if fresh or there:
        hold_for_moves(tx, plan, fresh, there)
