"""Constraints over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Call, Route
from roost.wire import constraints as w

if TYPE_CHECKING:
    from roost.control.rules.constraints import Constraints


def _ref(call: Call) -> tuple[str, str | None]:
    """Return the name of a constraint, and whose it is."""
    return call.path["constraint"], call.query.project


# fmt: off
def constraint_routes(rules: "Constraints") -> tuple[Route, ...]:
    """Return the routes of constraints."""
    return (
        Route(method="GET", path="/api/v1/constraints", noun="constraints", verb="list",
              call=lambda call: rules.list(call.query, call.who), roles=VIEWER | MEMBER,
              summary="List constraints", query=w.ListConstraints, reply=w.ConstraintPage),
        Route(method="POST", path="/api/v1/constraints", noun="constraints", verb="create",
              call=lambda call: rules.create(call.body, call.who, call.key),
              roles=OPERATOR | MEMBER, summary="Create a constraint", body=w.CreateConstraint,
              reply=w.ConstraintDetail, statuses=(201,),
              errors=("conflict", "not_found", "invalid_rule"), keyed=True,
              makes=("constraint", "name")),
        Route(method="POST", path="/api/v1/constraints:dry-run", noun="constraints", verb="dry_run",
              call=lambda call: rules.dry_run(call.body, call.who), roles=VIEWER | MEMBER,
              summary="Say what a constraint would mean for the fleet, without making it",
              body=w.DryRunConstraint, reply=w.ConstraintDryRunBody,
              errors=("not_found", "invalid_rule")),
        Route(method="GET", path="/api/v1/constraints:check", noun="constraints", verb="check",
              call=lambda call: rules.check(call.query, call.who), roles=VIEWER | MEMBER,
              summary="List the VMs that hard constraints find in the wrong place now",
              query=w.CheckConstraints, reply=w.ViolationsBody, errors=("not_found",)),
        Route(method="GET", path="/api/v1/constraints/{constraint}", noun="constraints", verb="get",
              call=lambda call: rules.get(*_ref(call), call.who), roles=VIEWER | MEMBER,
              summary="Show a constraint and its versions", query=w.OneConstraint,
              reply=w.ConstraintDetail),
        Route(method="POST", path="/api/v1/constraints/{constraint}/change", noun="constraints",
              verb="change", call=lambda call: rules.change(*_ref(call), call.body, call.who),
              roles=OPERATOR | MEMBER, summary="Change a constraint, as a new version",
              query=w.OneConstraint, body=w.ChangeConstraint, reply=w.ConstraintDetail,
              errors=(*CHANGING, "invalid_rule")),
        Route(method="DELETE", path="/api/v1/constraints/{constraint}", noun="constraints",
              verb="delete", call=lambda call: rules.delete(*_ref(call), call.who),
              roles=OPERATOR | MEMBER, summary="Delete a constraint", query=w.OneConstraint,
              statuses=(204,), errors=CHANGING),
    )
# fmt: on
