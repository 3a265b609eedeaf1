"""Write plans and their moves: rows and events in one transaction; every change moves a generation.

A plan's row is locked first by whoever changes it or one of its moves, so an operator who cancels
and the process that carries it out take turns.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import func, select

from roost.base.errors import Conflict, NotFound
from roost.control.plans.record import OVER, PLANNED
from roost.ledger.rows import Changes, PlanMoveRow, PlanRow
from roost.ledger.statements import Plus
from roost.ledger.tables import plan_moves, plans
from roost.ledger.transaction import Tx

#: Plans that are kept, and those that may be under way or wait for their start at once.
MOST_KEPT, MOST_OPEN = 200, 20

_OPEN = select(func.count()).select_from(plans).where(plans.c.state.not_in(OVER))
_OLDEST = select(plans.c.id).where(plans.c.state.in_(OVER)).order_by(plans.c.created_ms, plans.c.id)
_KEPT = select(func.count()).select_from(plans)


def insert(tx: Tx, row: PlanRow, moves: Sequence[PlanMoveRow]) -> None:
    """Keep a new plan with its moves; the oldest that is over makes room for it."""
    if int(tx.connection.execute(_OPEN).scalar_one()) >= MOST_OPEN:
        raise Conflict(
            f"{MOST_OPEN} plans are open already",
            hint="Maybe cancel those that nobody will apply.",
        )
    if int(tx.connection.execute(_KEPT).scalar_one()) >= MOST_KEPT:
        oldest = tx.connection.execute(_OLDEST.limit(1)).scalar()
        if oldest is not None:
            remove(tx, str(oldest))
    tx.insert(plans, msgspec.structs.asdict(row))
    for each in moves:
        tx.insert(plan_moves, msgspec.structs.asdict(each))
    note = f"{row.goal}: {len(moves)} moves"
    _say(tx, "plan.created", row, moves, note)


def remove(tx: Tx, plan: str) -> None:
    """Forget a plan that is over, with its moves."""
    numbers = [row["number"] for row in tx.find_all(plan_moves, plan=plan)]
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
    moves: Iterable[PlanMoveRow] = (),
    *,
    note: str = "",
    **values: Any,
) -> PlanRow:
    """Change a plan and some of its moves, and say so."""
    found = tx.change(plans, {"id": plan}, generation=Plus(1), **values)
    assert found is not None
    row, written = PlanRow(**found), []
    for each in moves:
        fields = msgspec.structs.asdict(each)
        key = {"plan": fields.pop("plan"), "number": fields.pop("number")}
        if tx.change(plan_moves, key, **fields) is None:
            tx.insert(plan_moves, msgspec.structs.asdict(each))
        written.append(each)
    _say(tx, kind, row, written, note)
    return row


def moves_of(tx: Tx, plan: str) -> list[PlanMoveRow]:
    """Return the moves of a plan in their order."""
    return [PlanMoveRow(**row) for row in tx.find_all(plan_moves, plan=plan)]


def end(tx: Tx, row: PlanRow, state: str, why: str, moves: Iterable[PlanMoveRow] = ()) -> PlanRow:
    """End a plan; moves that were not begun are dropped."""
    given = {each.number: each for each in moves}
    dropped = []
    for each in moves_of(tx, row.id):
        now = given.pop(each.number, each)
        if now.state == PLANNED:
            now = msgspec.structs.replace(now, state="dropped", why=why, ended_ms=tx.at_ms)
        if now is not each:
            dropped.append(now)
    return change(
        tx, row.id, f"plan.{state}", dropped, note=why, state=state, why=why, ended_ms=tx.at_ms
    )


def _say(tx: Tx, kind: str, row: PlanRow, moves: Iterable[PlanMoveRow], note: str) -> None:
    changes: Changes = {"plans": {row.id: row}}
    if listed := {each.key: each for each in moves}:
        changes["plan_moves"] = listed
    tx.event(kind, f"plan/{row.id}", changes, note=note)
