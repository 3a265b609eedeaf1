"""Flavors over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import ADMIN, MEMBER, VIEWER
from roost.parts.routes import CHANGING, Route
from roost.wire import flavors as w

if TYPE_CHECKING:
    from roost.control.flavors.flavors import FlavorAdmin


# fmt: off
def flavor_routes(flavors: "FlavorAdmin") -> tuple[Route, ...]:
    """Return the routes of flavors."""
    return (
        Route(method="GET", path="/api/v1/flavors", noun="flavors", verb="list",
              call=lambda call: flavors.list(), roles=VIEWER | MEMBER,
              summary="List flavors", reply=w.FlavorPage),
        Route(method="POST", path="/api/v1/flavors", noun="flavors", verb="create",
              call=lambda call: flavors.create(call.body, call.who, call.key),
              roles=ADMIN, summary="Create a flavor", body=w.CreateFlavor,
              reply=w.FlavorBody, statuses=(201,), errors=("conflict",), keyed=True,
              makes=("flavor", "name")),
        Route(method="GET", path="/api/v1/flavors/{flavor}", noun="flavors",
              verb="get", call=lambda call: flavors.get(call.path["flavor"]),
              roles=VIEWER | MEMBER, summary="Show a flavor", reply=w.FlavorBody),
        Route(method="POST", path="/api/v1/flavors/{flavor}/change",
              noun="flavors", verb="change",
              call=lambda call: flavors.change(call.path["flavor"], call.body, call.who),
              roles=ADMIN, summary="Change the amounts of a flavor, for VMs to come",
              body=w.ChangeFlavor, reply=w.FlavorBody, errors=CHANGING),
        Route(method="DELETE", path="/api/v1/flavors/{flavor}", noun="flavors", verb="delete",
              call=lambda call: flavors.delete(call.path["flavor"], call.who),
              roles=ADMIN, summary="Delete a flavor; VMs keep their amounts",
              statuses=(204,), errors=CHANGING),
    )
# fmt: on
