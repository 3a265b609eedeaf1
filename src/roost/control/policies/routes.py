"""Policies over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import ADMIN, MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import policies as w
from roost.wire.queries import OneVM

if TYPE_CHECKING:
    from roost.control.policies.policies import Policies

#: Why a policy may not be as somebody wants it.
_WRONG = ("invalid_rule", "invalid_strategy")


# fmt: off
def policy_routes(policies: "Policies") -> tuple[Route, ...]:
    """Return the routes of policies."""
    return (
        Route(method="GET", path="/api/v1/policies", noun="policies", verb="list",
              call=lambda call: policies.list(call.query, call.who), roles=VIEWER | MEMBER,
              summary="List policies", query=w.ListPolicies, reply=w.PolicyPage),
        Route(method="POST", path="/api/v1/policies", noun="policies", verb="create",
              call=lambda call: policies.create(call.body, call.who, call.key), roles=ADMIN,
              summary="Create a policy", body=w.CreatePolicy, reply=w.PolicyDetail,
              statuses=(201,), errors=("conflict", *_WRONG), keyed=True,
              makes=("policy", "name")),
        Route(method="POST", path="/api/v1/policies:dry-run", noun="policies", verb="dry_run",
              call=lambda call: policies.dry_run(call.body), roles=VIEWER,
              summary="Take past requests again under a policy, without making it",
              body=w.DryRunPolicy, reply=w.PolicyDryRunBody,
              errors=("not_found", *_WRONG)),
        Route(method="GET", path="/api/v1/policies/{policy}", noun="policies", verb="get",
              call=lambda call: policies.get(call.path["policy"], call.who),
              roles=VIEWER | MEMBER, summary="Show a policy and its versions",
              reply=w.PolicyDetail),
        Route(method="GET", path="/api/v1/policies/{policy}/diff", noun="policies", verb="diff",
              call=lambda call: policies.diff(call.path["policy"], call.query),
              roles=VIEWER | MEMBER, query=w.ComparePolicy, reply=w.PolicyDiffBody,
              summary="Compare two versions of a policy, or two policies"),
        Route(method="POST", path="/api/v1/policies/{policy}/change", noun="policies",
              verb="change", roles=ADMIN, summary="Change a policy, as a new version",
              call=lambda call: policies.change(call.path["policy"], call.body, call.who),
              body=w.ChangePolicy, reply=w.PolicyDetail, errors=(*CHANGING, *_WRONG)),
        Route(method="POST", path="/api/v1/policies/{policy}/rollback", noun="policies",
              verb="roll_back", roles=ADMIN,
              summary="Let an earlier version of a policy hold again, as a new version",
              call=lambda call: policies.roll_back(call.path["policy"], call.body, call.who),
              body=w.RollBackPolicy, reply=w.PolicyDetail, errors=(*CHANGING, "invalid_request")),
        Route(method="DELETE", path="/api/v1/policies/{policy}", noun="policies", verb="delete",
              call=lambda call: policies.delete(call.path["policy"], call.who), roles=ADMIN,
              summary="Delete a policy that nothing uses", statuses=(204,), errors=CHANGING),
        Route(method="PUT", path="/api/v1/projects/{name}/policy", noun="projects",
              verb="set_policy", roles=ADMIN, statuses=(204,), errors=CHANGING,
              summary="Make a policy the default of a project's new VMs",
              call=lambda call: policies.apply(call.path["name"], call.body, call.who),
              body=w.ApplyPolicy),
        Route(method="PUT", path="/api/v1/vms/{vm}/policy", noun="vms", verb="set_policy",
              roles=OPERATOR | MEMBER, errors=(*CHANGING, "invalid_request"),
              summary="Put a VM under another policy, or none",
              call=lambda call: policies.put_under(
                  call.path["vm"], call.query.project, call.body, call.who),
              query=OneVM, body=w.ApplyPolicy, reply=w.VMPolicyBody),
    )
# fmt: on
