"""The topology over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import OPERATOR, VIEWER
from roost.parts.routes import Route
from roost.wire import topology as w

if TYPE_CHECKING:
    from roost.control.topology.topology import Topology


# fmt: off
def topology_routes(parts: "Topology") -> tuple[Route, ...]:
    """Return the routes of the topology."""
    return (
        Route(method="GET", path="/api/v1/topology", noun="topology", verb="get",
              call=lambda call: parts.get(), roles=VIEWER,
              summary="Show the network between hosts", reply=w.TopologyBody),
        Route(method="PUT", path="/api/v1/topology", noun="topology", verb="apply",
              call=lambda call: parts.apply(call.body, call.who), roles=OPERATOR,
              summary="Replace the network between hosts", body=w.ApplyTopology,
              reply=w.TopologyBody),
        Route(method="GET", path="/api/v1/topology/path", noun="topology", verb="path",
              call=lambda call: parts.path(call.query.source, call.query.dest), roles=VIEWER,
              summary="Find the path between two nodes", query=w.AskPath, reply=w.PathBody,
              errors=("not_found",)),
    )
# fmt: on
