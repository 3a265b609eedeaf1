"""Preemptions over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import priorities as w
from roost.wire.queries import OneVM

if TYPE_CHECKING:
    from roost.control.preempt.asking import Asking


# fmt: off
def preemption_routes(asking: "Asking") -> tuple[Route, ...]:
    """Return the routes of preemptions."""
    return (
        Route(method="GET", path="/api/v1/preemptions", noun="preemptions", verb="list",
              call=lambda call: asking.list(call.query, call.who), roles=VIEWER | MEMBER,
              summary="List preemptions under way", query=w.ListPreemptions,
              reply=w.PreemptionPage),
        Route(method="GET", path="/api/v1/vms/{vm}/preemption", noun="preemptions", verb="get",
              call=lambda call: asking.get(call.path["vm"], call.query.project, call.who),
              roles=VIEWER | MEMBER,
              summary="Say who makes room for a VM that waits, or who would",
              query=OneVM, reply=w.PreemptionAnswer, errors=CHANGING),
        Route(method="POST", path="/api/v1/vms/{vm}/preempt", noun="preemptions", verb="begin",
              call=lambda call: asking.begin(call.path["vm"], call.query.project, call.who),
              roles=OPERATOR | MEMBER,
              summary="Let others make room for a VM that waits, as its priority class allows",
              query=OneVM, reply=w.PreemptionAnswer, errors=CHANGING),
    )
# fmt: on
