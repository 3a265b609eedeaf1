"""Write plans and their moves: rows and events in one transaction; every change moves a generation.

A plan's row is locked first by whoever changes it or one of its moves, so an operator who cancels
and the process that carries it out take turns.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import bindparam, func, select

from roost.base.errors import Conflict, NotFound
from roost.control.plans.record import DONE, DROPPED, FAILED, OVER, PLANNED
from roost.ledger.schema.rows import Changes, PlanMoveRow, PlanRow
from roost.ledger.schema.tables import plan_moves, plans
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx
from roost.planner.guards import COUNTED_S

#: Plans that are kept, beside those whose moves count still, and those that may be under way or
#: wait for their start at once.
MOST_KEPT, MOST_OPEN = 200, 20
#: Plans that make room for one new one; more than one after a day of many.
_MOST_REMOVED = 5

_OPEN = select(func.count()).select_from(plans).where(plans.c.state.not_in(OVER))
#: Moves of a day are counted by who moves VMs next, however many plans there were meanwhile.
_COUNTED = (
    select(plan_moves.c.plan)
    .where(plan_moves.c.state.in_((DONE, FAILED)), plan_moves.c.ended_ms > bindparam("since"))
    .where(plan_moves.c.plan == plans.c.id)
)
_OLDEST = (
    select(plans.c.id)
    .where(plans.c.state.in_(OVER), ~_COUNTED.exists())
    .order_by(plans.c.created_ms, plans.c.id)
    .limit(bindparam("most"))
)
_NUMBERS = select(plan_moves.c.number).where(plan_moves.c.plan == bindparam("plan"))
_KEPT = select(func.count()).select_from(plans)


def insert(tx: Tx, row: PlanRow, moves: Sequence[PlanMoveRow]) -> None:
    """Keep a new plan with its moves; the oldest that is over and counts no more makes room."""
    if int(tx.connection.execute(_OPEN).scalar_one()) >= MOST_OPEN:
        raise Conflict(
            f"{MOST_OPEN} plans are open already",
            hint="Maybe cancel those that nobody will apply.",
        )
    over = int(tx.connection.execute(_KEPT).scalar_one()) - MOST_KEPT + 1
    if over > 0:
        asked = {"since": tx.at_ms - 1000 * COUNTED_S, "most": min(over, _MOST_REMOVED)}
        for oldest in tx.connection.execute(_OLDEST, asked).scalars().all():
            remove(tx, str(oldest))
    tx.insert(plans, msgspec.structs.asdict(row))
    tx.insert_all(plan_moves, [msgspec.structs.asdict(each) for each in moves])
    note = f"{row.goal}: {len(moves)} moves"
    _say(tx, "plan.created", row, moves, note)


def remove(tx: Tx, plan: str) -> None:
    """Forget a plan that is over, with its moves."""
    numbers = tx.connection.execute(_NUMBERS, {"plan": plan}).scalars().all()
    tx.remove(plan_moves, plan=plan)
    tx.remove(plans, id=plan)
    changes: Changes = {
        "plans": {plan: None},
        "plan_moves": {f"{plan}|{number}": None for number in numbers},
    }
    tx.event("plan.forgotten", f"plan/{plan}", changes)


def locked_plan(tx: Tx, plan: str) -> PlanRow:
    """Return a plan, locked until the transaction ends."""
    found = tx.find(plans, lock=True, id=plan)
    if found is None:
        raise NotFound(f"no plan {plan!r}", plan=plan)
    return PlanRow(**found)


def change(
    tx: Tx,
    plan: str,
    kind: str,
    moves: Sequence[PlanMoveRow] = (),
    *,
    fresh: Sequence[PlanMoveRow] = (),
    note: str = "",
    **values: Any,
) -> PlanRow:
    """Change a plan and some of its moves, add fresh ones, and say so."""
    found = tx.change(plans, {"id": plan}, generation=Plus(1), **values)
    assert found is not None
    row = PlanRow(**found)
    changed = [msgspec.structs.asdict(each) for each in moves]
    tx.change_all(plan_moves, ("plan", "number"), changed)
    tx.insert_all(plan_moves, [msgspec.structs.asdict(each) for each in fresh])
    _say(tx, kind, row, (*moves, *fresh), note)
    return row


def dropped_moves(tx: Tx, plan: str, why: str) -> list[PlanMoveRow]:
    """Return the moves of a plan that were not begun, as they are once they are dropped."""
    waiting = tx.find_all(plan_moves, plan=plan, state=PLANNED)
    ended = {"state": DROPPED, "why": why, "ended_ms": tx.at_ms}
    return [PlanMoveRow(**{**row, **ended}) for row in waiting]


def end(tx: Tx, row: PlanRow, state: str, why: str) -> PlanRow:
    """End a plan; moves that were not begun are dropped."""
    dropped = dropped_moves(tx, row.id, why)
    return change(
        tx, row.id, f"plan.{state}", dropped, note=why, state=state, why=why, ended_ms=tx.at_ms
    )


def _say(tx: Tx, kind: str, row: PlanRow, moves: Sequence[PlanMoveRow], note: str) -> None:
    changes: Changes = {"plans": {row.id: row}}
    if listed := {each.key: each for each in moves}:
        changes["plan_moves"] = listed
    tx.event(kind, f"plan/{row.id}", changes, note=note)
