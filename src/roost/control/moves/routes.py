"""Moves over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import OPERATOR
from roost.parts.routes import CHANGING, NO_PLACE, Route
from roost.wire import bodies as b
from roost.wire.queries import OneVM

if TYPE_CHECKING:
    from roost.control.moves.moving import Moving


# fmt: off
def move_routes(moves: "Moving") -> tuple[Route, ...]:
    """Return the routes of moves."""
    return (
        Route(method="POST", path="/api/v1/vms/{vm}/migrate", noun="vms", verb="migrate",
              call=lambda call: moves.migrate(
                  call.path["vm"], call.query.project, call.body, call.who),
              roles=OPERATOR, summary="Move a VM", query=OneVM, body=b.MigrateVM, reply=b.VMBody,
              statuses=(202,), errors=("conflict", *NO_PLACE)),
        Route(method="POST", path="/api/v1/vms/{vm}/cancel-migration",
              noun="vms", verb="cancel_migration",
              call=lambda call: moves.cancel(call.path["vm"], call.query.project, call.who),
              roles=OPERATOR, summary="Call off the move of a VM", query=OneVM, reply=b.VMBody,
              statuses=(202,), errors=CHANGING),
    )
# fmt: on
