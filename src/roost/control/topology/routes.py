"""The topology over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import OPERATOR, VIEWER
from roost.parts.routes import Route
from roost.wire import topology as w

if TYPE_CHECKING:
    from roost.control.topology.measuring import Measuring
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
        Route(method="GET", path="/api/v1/topology/traffic", noun="topology", verb="traffic",
              call=lambda call: parts.traffic(), roles=OPERATOR,
              summary="Show which VMs talk", reply=w.TrafficMatrixBody),
        Route(method="PUT", path="/api/v1/topology/traffic", noun="topology", verb="set_traffic",
              call=lambda call: parts.set_traffic(call.body, call.who), roles=OPERATOR,
              summary="Declare which VMs talk", body=w.SetTraffic,
              reply=w.TrafficMatrixBody),
    )


def measuring_routes(parts: "Measuring") -> tuple[Route, ...]:
    """Return the routes of measurements of the topology."""
    return (
        Route(method="POST", path="/api/v1/topology/measurements", noun="topology",
              verb="measure", call=lambda call: parts.begin(call.body), roles=OPERATOR,
              summary="Let agents measure the network between hosts",
              body=w.MeasureTopology, reply=w.MeasurementBody, errors=("conflict", "not_found")),
        Route(method="GET", path="/api/v1/topology/measurements/{measurement}", noun="topology",
              verb="measurement", call=lambda call: parts.get(call.path["measurement"]),
              roles=OPERATOR, summary="Show a measurement and the topology that it proposes",
              reply=w.MeasurementBody, errors=("not_found",)),
        Route(method="POST", path="/api/v1/topology/measurements/{measurement}/cancel",
              noun="topology", verb="cancel_measurement",
              call=lambda call: parts.cancel(call.path["measurement"]), roles=OPERATOR,
              summary="End a measurement with what was found so far",
              reply=w.MeasurementBody, errors=("not_found",)),
    )
# fmt: on
