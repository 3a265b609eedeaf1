"""The bodies of the network topology over HTTP. Units: Mbit/s and ms, as in its file."""

from typing import Annotated, Literal

from msgspec import Meta, field

from roost.wire.bodies import Reply, Request, Text
from roost.wire.queries import Query

#: Nodes, links and pairs of VMs that one topology has.
MOST_NODES, MOST_LINKS, MOST_TRAFFIC = 150_000, 300_000, 100_000

NodeId = Annotated[str, Meta(min_length=1, max_length=253)]


class NodeBody(Request):
    """A host, switch or router; `capacity` 0: what it can switch is not known."""

    id: NodeId
    type: Literal["host", "switch", "router"] = "switch"
    capacity: float = 0.0
    load: float = 0.0


class LinkBody(Request):
    """A link, both ways: bandwidth in Mbit/s, latency in ms, the share that is taken, 0 to 1."""

    source: NodeId
    dest: NodeId
    bandwidth: float
    latency: float = 0.0
    utilization: float = 0.0


class TrafficBody(Request):
    """How much two VMs talk, in Mbit/s; VMs by name as PROJECT/NAME, or by id."""

    source: Text
    dest: Text
    rate: float


class ApplyTopology(Request):
    """The network between hosts; it replaces the one that was there."""

    nodes: Annotated[list[NodeBody], Meta(max_length=MOST_NODES)]
    links: Annotated[list[LinkBody], Meta(max_length=MOST_LINKS)]
    traffic: Annotated[list[TrafficBody], Meta(max_length=MOST_TRAFFIC)] = field(
        default_factory=list
    )


class UplinkBody(Reply):
    """A link that hosts share, and how many pairs of them cannot do without it."""

    source: str
    dest: str
    bandwidth: float
    utilization: float
    pairs: int


class TopologyBody(Reply):
    """The network as it is known.

    source: `declared`, or `labels` when it is assumed from zones and racks. `missing` are hosts
    that it does not name.
    """

    source: str
    generation: int
    nodes: list[NodeBody]
    links: list[LinkBody]
    traffic: list[TrafficBody]
    uplinks: list[UplinkBody]
    missing: list[str]
    changed_at: str | None = None
    changed_by: str = ""


class AskPath(Query):
    """Between which nodes."""

    source: NodeId
    dest: NodeId


class PathBody(Reply):
    """The path between two nodes: what it passes, its latency, and what its narrowest link has."""

    source: str
    dest: str
    nodes: list[str]
    hops: int
    latency_ms: float
    free_mbit: float | None
    narrowest: LinkBody | None
