"""The topology in both clients: its calls and methods."""

from roost.client.binding import Method
from roost.client.calls import Call, path, query, reads
from roost.wire import topology as wire

_read_one = reads(wire.TopologyBody)


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


class TopologyMethods:
    """What clients do with the topology."""

    get_topology = Method(get_topology)
    apply_topology = Method(apply_topology)
    topology_path = Method(topology_path)
