"""The topology in both clients: its calls and methods."""

from roost.client.binding import Method
from roost.client.calls import Call, path, query, reads
from roost.wire import topology as wire

_read_one = reads(wire.TopologyBody)
_read_measurement = reads(wire.MeasurementBody)


def get_topology() -> Call[wire.TopologyBody]:
    """Return the network between hosts."""
    return Call("GET", path("topology"), _read_one)


def apply_topology(topology: wire.ApplyTopology) -> Call[wire.TopologyBody]:
    """Replace the network between hosts."""
    return Call("PUT", path("topology"), _read_one, body=topology)


def topology_path(source: str, dest: str) -> Call[wire.PathBody]:
    """Find the path between two nodes of the network."""
    asked = query(source=source, dest=dest)
    return Call("GET", path("topology", "path"), reads(wire.PathBody), asked)


def get_traffic() -> Call[wire.TrafficMatrixBody]:
    """Return which VMs talk."""
    return Call("GET", path("topology", "traffic"), reads(wire.TrafficMatrixBody))


def set_traffic(traffic: wire.SetTraffic) -> Call[wire.TrafficMatrixBody]:
    """Declare which VMs talk, or take pairs back."""
    return Call("PUT", path("topology", "traffic"), reads(wire.TrafficMatrixBody), body=traffic)


def measure_topology(measure: wire.MeasureTopology) -> Call[wire.MeasurementBody]:
    """Let agents measure the network between hosts; `topology_measurement` shows how far it is."""
    return Call(
        "POST", path("topology", "measurements"), _read_measurement, body=measure, repeatable=False
    )


def topology_measurement(measurement: str) -> Call[wire.MeasurementBody]:
    """Return a measurement and the topology that it proposes."""
    return Call("GET", path("topology", "measurements", measurement), _read_measurement)


def cancel_topology_measurement(measurement: str) -> Call[wire.MeasurementBody]:
    """End a measurement with what was found so far."""
    where = path("topology", "measurements", measurement, "cancel")
    return Call("POST", where, _read_measurement)


class TopologyMethods:
    """What clients do with the topology."""

    get_topology = Method(get_topology)
    apply_topology = Method(apply_topology)
    topology_path = Method(topology_path)
    measure_topology = Method(measure_topology)
    topology_measurement = Method(topology_measurement)
    cancel_topology_measurement = Method(cancel_topology_measurement)
    get_traffic = Method(get_traffic)
    set_traffic = Method(set_traffic)
