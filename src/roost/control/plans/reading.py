"""Read plans from one view of the ledger, as users see them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from roost.base.errors import InvalidRequest, NotFound
from roost.base.timestamps import timestamp
from roost.control.memory.roster import Roster
from roost.control.plans.keepingroom import count_held
from roost.control.plans.record import (
    DONE,
    FAILED,
    OVER,
    PAUSED,
    PLANNED,
    RUNNING,
    WAITING,
    actual_of,
    asked_of,
    blocker_body,
    found_of,
    load_body,
    picture_body,
    predicted_of,
    together_body,
    window_body,
)
from roost.ledger.schema.rows import PlanMoveRow, PlanRow
from roost.ledger.schema.tables import plan_moves, plans
from roost.ledger.writes.statements import find_row
from roost.planner.cost import median_ratio
from roost.wire.plans import ListPlans, PlanBody, PlanDetail, PlanMoveBody, PlanPage, ShowPlan

#: Moves that were made whose seconds are compared with the predicted ones, the last of a plan.
_MOST_COMPARED = 200
#: VMs that open plans have in hand.
_TAKEN = (
    select(plan_moves.c.vm)
    .join(plans, plans.c.id == plan_moves.c.plan)
    .where(plans.c.state.in_((WAITING, RUNNING, PAUSED)), plans.c.id != bindparam("but"))
    .where(plan_moves.c.state.in_((PLANNED, RUNNING)))
)


def plan_row(connection: Connection, plan: str) -> PlanRow:
    """Return a plan by its id."""
    found = find_row(connection, plans, {"id": plan})
    if found is None:
        raise NotFound(f"no plan {plan!r}", plan=plan)
    return PlanRow(**found)


def listed(connection: Connection, asked: ListPlans) -> PlanPage:
    """Return a page of plans, the newest first."""
    query = select(plans).order_by(plans.c.created_ms.desc(), plans.c.id.desc())
    if asked.state is not None:
        query = query.where(plans.c.state == asked.state)
    if asked.created_by is not None:
        query = query.where(plans.c.created_by == asked.created_by)
    if asked.after is not None:
        at, _, last = asked.after.partition("|")
        if not at.isdigit():
            raise InvalidRequest(f"{asked.after!r} continues no list of plans")
        older = plans.c.created_ms < int(at)
        query = query.where(older | ((plans.c.created_ms == int(at)) & (plans.c.id < last)))
    found = connection.execute(query.limit(asked.limit + 1)).mappings()
    rows = [PlanRow(**row) for row in found]
    counts = _counts(connection, [row.id for row in rows])
    last_row = rows[asked.limit - 1] if len(rows) > asked.limit else None
    return PlanPage(
        plans=[PlanBody(**_fields(row, counts)) for row in rows[: asked.limit]],
        next=None if last_row is None else f"{last_row.created_ms}|{last_row.id}",
    )


def detail(
    connection: Connection, row: PlanRow, roster: Roster, asked: ShowPlan | None = None
) -> PlanDetail:
    """Return a plan with a page of its moves."""
    asked = asked or ShowPlan()
    mine = select(plan_moves).where(plan_moves.c.plan == row.id)
    query = mine.where(plan_moves.c.number > asked.after).order_by(plan_moves.c.number)
    if asked.move_state is not None:
        query = query.where(plan_moves.c.state == asked.move_state)
    found = connection.execute(query.limit(asked.limit + 1)).mappings()
    moves = [PlanMoveRow(**each) for each in found]
    newest = mine.where(plan_moves.c.state == DONE).order_by(plan_moves.c.number.desc())
    made = connection.execute(newest.limit(_MOST_COMPARED)).mappings()
    return _detail(
        row,
        _counts(connection, [row.id]),
        moves[: asked.limit],
        [PlanMoveRow(**each) for each in made],
        roster,
        moves[asked.limit - 1].number if len(moves) > asked.limit else None,
        0 if row.state in OVER else count_held(connection, row.id),
    )


def drafted(row: PlanRow, moves: Sequence[PlanMoveRow], roster: Roster) -> PlanDetail:
    """Return a plan that is not kept, with all of its moves."""
    return _detail(row, {(row.id, PLANNED): len(moves)}, moves, (), roster, None)


def taken_vms(connection: Connection, but: str = "") -> frozenset[str]:
    """Return the VMs that open plans have in hand, all or all but one."""
    return frozenset(connection.execute(_TAKEN, {"but": but}).scalars())


def _detail(
    row: PlanRow,
    counts: Mapping[tuple[str, str], int],
    moves: Sequence[PlanMoveRow],
    made: Sequence[PlanMoveRow],
    roster: Roster,
    after: int | None,
    held: int = 0,
) -> PlanDetail:
    found = found_of(row)
    # Against what the plan said, with all that was learnt by then: it is that which was off.
    pairs = [
        (predicted_of(each).total_s, actual.total_s)
        for each in made
        if (actual := actual_of(each)) is not None
    ]
    took = median_ratio(pairs)
    return PlanDetail(
        **_fields(row, counts),
        listed=[_move(each, roster) for each in moves],
        next=after,
        blocked=[blocker_body(each) for each in found.blocked],
        vetoed=[blocker_body(each) for each in found.vetoed],
        more_vetoes=found.more_vetoes,
        hosts=[load_body(each) for each in found.hosts],
        together=[together_body(each) for each in found.together],
        held=held,
        actual=None if found.actual is None else picture_body(found.actual),
        accuracy=None if took is None else round(took, 3),
    )


def _counts(connection: Connection, ids: Sequence[str]) -> Mapping[tuple[str, str], int]:
    query = (
        select(plan_moves.c.plan, plan_moves.c.state, func.count())
        .where(plan_moves.c.plan.in_(list(ids)))
        .group_by(plan_moves.c.plan, plan_moves.c.state)
    )
    return {(plan, state): count for plan, state, count in connection.execute(query)}


def _fields(row: PlanRow, counts: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    found, asked = found_of(row), asked_of(row)
    mine = {state: count for (plan, state), count in counts.items() if plan == row.id}
    return {
        "id": row.id,
        "goal": row.goal,
        "state": row.state,
        "why": row.why,
        "generation": row.generation,
        "moves": sum(count for state, count in mine.items() if state != "dropped"),
        "done": mine.get(DONE, 0),
        "failed": mine.get(FAILED, 0),
        "moving": mine.get(RUNNING, 0),
        "waves": found.waves,
        "wave": row.wave,
        "replans": row.replans,
        "eta_s": found.eta_s,
        "sent_bytes": found.sent_bytes,
        "stand_still_s": found.stand_still_s,
        "blockers": len(found.blocked),
        "before": picture_body(found.before),
        "after": picture_body(found.after),
        "start": _moment(row.starts_ms),
        "end": _moment(row.ends_ms),
        "windows": [window_body(each) for each in asked.windows],
        "not_converging": asked.not_converging,
        "created_at": timestamp(row.created_ms),
        "created_by": row.created_by,
        "begun_at": _moment(row.begun_ms),
        "ended_at": _moment(row.ended_ms),
    }


def _move(row: PlanMoveRow, roster: Roster) -> PlanMoveBody:
    return PlanMoveBody(
        number=row.number,
        wave=row.wave,
        vm=row.vm,
        name=row.name,
        source=roster.host_name(row.source) or "?",
        target=roster.host_name(row.target) or "?",
        state=row.state,
        why=row.why,
        predicted=predicted_of(row),
        actual=actual_of(row),
        begun_at=_moment(row.begun_ms),
        ended_at=_moment(row.ended_ms),
    )


def _moment(ms: int | None) -> str | None:
    return None if ms is None else timestamp(ms)
