"""What a doctor should know of plans: moves without a plan, states that cannot be, failures."""

from sqlalchemy import Connection, select

from roost.control.plans.record import FAILED, OVER, RUNNING
from roost.ledger.schema.tables import hosts, plan_moves, plans
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import count_rows

_ORPHANS = select(plan_moves.c.plan, plan_moves.c.number).where(
    plan_moves.c.plan.not_in(select(plans.c.id))
)
_UNBEGUN = select(plan_moves.c.plan, plan_moves.c.number).where(
    plan_moves.c.state == RUNNING, plan_moves.c.begun_ms.is_(None)
)
# No joins: what NOT IN is asked of PostgreSQL hashes, whatever it knows of the sizes of tables.
_OPEN = select(plans.c.id).where(plans.c.state.not_in(OVER))
_ENDED = select(plans.c.id).where(plans.c.state.in_(OVER))
_LEFT = select(plan_moves.c.plan, plan_moves.c.number).where(
    plan_moves.c.state == "planned", plan_moves.c.plan.not_in(_OPEN)
)
_LOST = select(plan_moves.c.plan, plan_moves.c.number, plan_moves.c.target).where(
    plan_moves.c.state == "planned",
    plan_moves.c.plan.not_in(_ENDED),
    plan_moves.c.target.not_in(select(hosts.c.number)),
)
_FAILED = (
    select(plans.c.id, plans.c.why)
    .where(plans.c.state == FAILED)
    .order_by(plans.c.created_ms.desc())
    .limit(5)
)


def check_plans(connection: Connection, found: Examination) -> None:
    """See whether plans and their moves belong together; tell of those that failed."""
    found.count("plans", count_rows(connection, plans) + count_rows(connection, plan_moves))
    orphans = {(plan, number) for plan, number in connection.execute(_ORPHANS)}
    for plan, number in sorted(orphans):
        found.find("plans", f"move {number} belongs to plan {plan!r}, which does not exist")
    for plan, number in connection.execute(_UNBEGUN):
        found.find("plans", f"move {number} of plan {plan!r} is running and was never begun")
    left = {(plan, number) for plan, number in connection.execute(_LEFT)} - orphans
    for plan, number in sorted(left):
        found.find("plans", f"plan {plan!r} is over, and its move {number} still waits")
    for plan, number, target in connection.execute(_LOST):
        found.note("plans", f"move {number} of plan {plan!r} goes to host {target}, which is gone")
    for plan, why in connection.execute(_FAILED):
        found.note("plans", f"plan {plan!r} failed: {why}")
