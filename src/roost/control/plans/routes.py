"""Plans over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import plans as w

if TYPE_CHECKING:
    from roost.control.plans.continuous import Continuous
    from roost.control.plans.plans import Plans


# fmt: off
def continuous_routes(part: "Continuous") -> tuple[Route, ...]:
    """Return the route of continuous mode."""
    return (
        Route(method="GET", path="/api/v1/continuous", noun="continuous", verb="get",
              call=lambda call: part.get(), roles=VIEWER,
              summary="Say what continuous mode may do, and what its last look said",
              reply=w.ContinuousBody),
    )


def plan_routes(parts: "Plans") -> tuple[Route, ...]:
    """Return the routes of plans."""
    return (
        Route(method="GET", path="/api/v1/recommendations", noun="recommendations", verb="fleet",
              call=lambda call: parts.recommend(), roles=VIEWER,
              summary="Say what is wrong with the fleet, and what a plan would do about it",
              reply=w.FleetRecommendations, errors=("search_busy",)),
        Route(method="POST", path="/api/v1/maintenance", noun="maintenance", verb="plan",
              call=lambda call: parts.maintenance(call.body), roles=OPERATOR,
              summary="Put hosts into groups that may be away together; nothing is kept",
              body=w.PlanMaintenance, reply=w.MaintenanceBody, errors=("search_busy",)),
        Route(method="GET", path="/api/v1/plans", noun="plans", verb="list",
              call=lambda call: parts.list(call.query), roles=VIEWER,
              summary="List plans, the newest first", query=w.ListPlans, reply=w.PlanPage),
        Route(method="POST", path="/api/v1/plans", noun="plans", verb="create",
              call=lambda call: parts.create(call.body, call.who, call.key), roles=OPERATOR,
              summary="Plan moves towards a goal", body=w.CreatePlan, reply=w.PlanDetail,
              statuses=(201, 200), errors=("conflict", "not_found", "search_busy"), keyed=True,
              makes=("plan", "id")),
        Route(method="GET", path="/api/v1/plans/{plan}", noun="plans", verb="get",
              call=lambda call: parts.get(call.path["plan"], call.query), roles=VIEWER,
              summary="Show a plan and its moves", query=w.ShowPlan, reply=w.PlanDetail),
        Route(method="POST", path="/api/v1/plans/{plan}/apply", noun="plans", verb="apply",
              call=lambda call: parts.apply(call.path["plan"], call.who), roles=OPERATOR,
              summary="Let a plan begin, now or at its start", reply=w.PlanDetail,
              errors=CHANGING),
        Route(method="POST", path="/api/v1/plans/{plan}/pause", noun="plans", verb="pause",
              call=lambda call: parts.pause(call.path["plan"], call.who), roles=OPERATOR,
              summary="Begin no more moves of a plan", reply=w.PlanDetail, errors=CHANGING),
        Route(method="POST", path="/api/v1/plans/{plan}/resume", noun="plans", verb="resume",
              call=lambda call: parts.resume(call.path["plan"], call.who), roles=OPERATOR,
              summary="Go on with a plan that was paused", reply=w.PlanDetail, errors=CHANGING),
        Route(method="POST", path="/api/v1/plans/{plan}/cancel", noun="plans", verb="cancel",
              call=lambda call: parts.cancel(call.path["plan"], call.who), roles=OPERATOR,
              summary="End a plan; moves that have not left their hosts are taken back",
              reply=w.PlanDetail, errors=CHANGING),
    )
# fmt: on
