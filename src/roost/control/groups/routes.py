"""VM groups over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, Call, Route
from roost.wire import groups as w

if TYPE_CHECKING:
    from roost.control.groups.groups import Groups


def _ref(call: Call) -> tuple[str, str | None]:
    """Return the group reference of a call: an id or a name, and its project."""
    return call.path["group"], call.query.project


# fmt: off
def group_routes(groups: "Groups") -> tuple[Route, ...]:
    """Return the routes of groups."""
    return (
        Route(method="GET", path="/api/v1/groups", noun="groups", verb="list_groups",
              call=lambda call: groups.list(call.query, call.who), roles=VIEWER | MEMBER,
              summary="List groups", query=w.ListGroups, reply=w.GroupPage),
        Route(method="POST", path="/api/v1/groups", noun="groups", verb="create",
              call=lambda call: groups.create(call.body, call.who, call.key),
              roles=OPERATOR | MEMBER, summary="Create a group without members",
              body=w.CreateGroup, reply=w.GroupDetail, statuses=(201,),
              errors=("conflict", "not_found"), keyed=True, makes=("group", "id")),
        Route(method="GET", path="/api/v1/groups/{group}", noun="groups", verb="get",
              call=lambda call: groups.get(*_ref(call), call.who, call.query.limit,
                                           call.query.after),
              roles=VIEWER | MEMBER, summary="Show a group, its members and whether its rule holds",
              query=w.ShowGroup, reply=w.GroupDetail),
        Route(method="PUT", path="/api/v1/groups/{group}/rule", noun="groups", verb="set_rule",
              call=lambda call: groups.set_rule(*_ref(call), call.body, call.who),
              roles=OPERATOR | MEMBER, summary="Replace a group's rule", query=w.OneGroup,
              body=w.SetGroupRule, reply=w.GroupDetail, errors=CHANGING),
        Route(method="PUT", path="/api/v1/groups/{group}/budget", noun="groups", verb="set_budget",
              call=lambda call: groups.set_budget(*_ref(call), call.body, call.who),
              roles=OPERATOR | MEMBER, summary="Set or remove a group's disruption budget",
              query=w.OneGroup, body=w.SetBudget, reply=w.GroupDetail, errors=CHANGING),
        Route(method="POST", path="/api/v1/groups/{group}/add", noun="groups", verb="add",
              call=lambda call: groups.add(*_ref(call), call.body, call.who),
              roles=OPERATOR | MEMBER, summary="Make VMs members of a group", query=w.OneGroup,
              body=w.GroupVMs, reply=w.GroupDetail, errors=CHANGING),
        Route(method="POST", path="/api/v1/groups/{group}/remove", noun="groups", verb="remove",
              call=lambda call: groups.remove(*_ref(call), call.body, call.who),
              roles=OPERATOR | MEMBER, summary="Let VMs leave a group", query=w.OneGroup,
              body=w.GroupVMs, reply=w.GroupDetail, errors=CHANGING),
        Route(method="DELETE", path="/api/v1/groups/{group}", noun="groups", verb="delete",
              call=lambda call: groups.delete(*_ref(call), call.who,
                                              force=call.query.force == "true"),
              roles=OPERATOR | MEMBER, summary="Delete a group", query=w.DeleteGroup,
              statuses=(204,), errors=CHANGING),
    )
# fmt: on
