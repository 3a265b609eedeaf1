"""Priority classes over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import ADMIN, MEMBER, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import priorities as w

if TYPE_CHECKING:
    from roost.control.priorities.classes import Priorities


# fmt: off
def class_routes(classes: "Priorities") -> tuple[Route, ...]:
    """Return the routes of priority classes."""
    return (
        Route(method="GET", path="/api/v1/priority-classes", noun="priorities", verb="list",
              call=lambda call: classes.list(), roles=VIEWER | MEMBER,
              summary="List priority classes", reply=w.PriorityClassPage),
        Route(method="POST", path="/api/v1/priority-classes", noun="priorities", verb="create",
              call=lambda call: classes.create(call.body, call.who, call.key),
              roles=ADMIN, summary="Create a priority class", body=w.CreatePriorityClass,
              reply=w.PriorityClassBody, statuses=(201,), errors=("conflict",), keyed=True,
              makes=("priority_class", "name")),
        Route(method="GET", path="/api/v1/priority-classes/{priority_class}", noun="priorities",
              verb="get", call=lambda call: classes.get(call.path["priority_class"]),
              roles=VIEWER | MEMBER, summary="Show a priority class", reply=w.PriorityClassBody),
        Route(method="POST", path="/api/v1/priority-classes/{priority_class}/change",
              noun="priorities", verb="change",
              call=lambda call: classes.change(call.path["priority_class"], call.body, call.who),
              roles=ADMIN, summary="Change a priority class, but for its value",
              body=w.ChangePriorityClass, reply=w.PriorityClassBody, errors=CHANGING),
        Route(method="DELETE", path="/api/v1/priority-classes/{priority_class}",
              noun="priorities", verb="delete",
              call=lambda call: classes.delete(call.path["priority_class"], call.who,
                                               force=call.query.force == "true"),
              roles=ADMIN, summary="Delete a priority class", query=w.DeletePriorityClass,
              statuses=(204,), errors=CHANGING),
    )
# fmt: on
