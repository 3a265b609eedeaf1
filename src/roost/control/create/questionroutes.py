"""Questions over HTTP: what would happen, and how much more fits."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, VIEWER
from roost.parts.routes import Route
from roost.wire import bodies as b
from roost.wire import recommendations as r

if TYPE_CHECKING:
    from roost.control.create.questions import Questions

_ERRORS = ("invalid_strategy", "not_found", "conflict", "agent_service_unavailable")


# fmt: off
def question_routes(questions: "Questions") -> tuple[Route, ...]:
    """Return the routes of dry runs, capacity and strategies."""
    return (
        Route(method="POST", path="/api/v1/placements:dry-run", noun="questions", verb="dry_run",
              call=lambda call: questions.dry_run(call.body, call.who), roles=VIEWER | MEMBER,
              summary="Place a VM without creating it", body=b.DryRun,
              reply=b.PlacementBody | b.RejectionBody, errors=_ERRORS),
        Route(method="POST", path="/api/v1/placements:dry-run-batch",
              noun="questions", verb="dry_run_many",
              call=lambda call: questions.dry_run_many(call.body, call.who, call.asker),
              roles=VIEWER | MEMBER,
              summary="Place VMs one after the other without creating them", body=b.DryRunBatch,
              reply=b.AnswersBody, errors=_ERRORS),
        Route(method="POST", path="/api/v1/capacity", noun="questions", verb="capacity",
              call=lambda call: questions.capacity(call.body, call.who), roles=VIEWER | MEMBER,
              summary="Ask how many more copies of a VM fit", body=b.CapacityQuestion,
              reply=b.CapacityBody, errors=_ERRORS),
        Route(method="POST", path="/api/v1/recommendations", noun="questions", verb="recommend",
              call=lambda call: questions.recommend(call.body, call.who), roles=VIEWER | MEMBER,
              summary="Rank the hosts for a VM that exists or not", body=r.AskRecommendations,
              reply=r.RecommendationsBody, errors=_ERRORS),
        Route(method="GET", path="/api/v1/strategies", noun="questions", verb="strategies",
              call=lambda call: questions.strategies(), roles=VIEWER | MEMBER,
              summary="List the strategies", reply=b.StrategiesBody),
    )
# fmt: on
