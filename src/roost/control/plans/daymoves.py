"""Count what plans have moved within a day, and say what that leaves continuous mode.

Both the look that makes a plan and the runner that plans the rest of one anew come here, so a plan
nobody asked for keeps its limits however often it is planned anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select

from roost.control.plans.continuouslimits import AUTHOR, ContinuousLimits
from roost.control.plans.record import DONE, FAILED, RUNNING
from roost.ledger.schema.tables import plan_moves, plans
from roost.ledger.upkeep.retention import DAY_S

#: How long a move counts, in milliseconds.
DAY_MS = 1000 * DAY_S

#: A move that failed may have cost the VM as much as one that was made.
_ENDED = plan_moves.c.state.in_((DONE, FAILED)) & (plan_moves.c.ended_ms > bindparam("since"))
_COUNTED = _ENDED | (plan_moves.c.state == RUNNING)
_DAY = select(plan_moves.c.vm, func.count()).where(_COUNTED).group_by(plan_moves.c.vm)
_OWN_DAY = (
    select(func.count())
    .select_from(plan_moves)
    .where(_COUNTED)
    .where(plan_moves.c.plan.in_(select(plans.c.id).where(plans.c.created_by == AUTHOR)))
)


@dataclass(frozen=True, slots=True)
class DayMoves:
    """What has moved within a day or moves now: each VM by any plan, all by continuous mode."""

    of: Mapping[str, int]
    own: int

    def left(self, limits: ContinuousLimits) -> int:
        """Return how many moves continuous mode may still make."""
        return max(0, limits.day - self.own)

    def held(self, limits: ContinuousLimits) -> dict[str, str]:
        """Return the VMs that it may not move, and why."""
        enough = "it has moved often enough in a day"
        return {vm: enough for vm, times in self.of.items() if times >= limits.vm_day}


def day_moves(connection: Connection, now_ms: int) -> DayMoves:
    """Count the moves of plans within the day that ends now."""
    since = {"since": now_ms - DAY_MS}
    of = {vm: int(times) for vm, times in connection.execute(_DAY, since)}
    return DayMoves(of, int(connection.execute(_OWN_DAY, since).scalar_one()))
