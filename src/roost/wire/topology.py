"""The bodies of the network topology and the traffic matrix over HTTP. Units: Mbit/s and ms.

Rates of traffic are both ways together. A VM is named by its id or as PROJECT/NAME, and may not be
there yet; `group:PROJECT/NAME` stands for every member of a group, each with that rate.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from roost.wire.bodies import Name, Reply, Request, Text
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
    """How much two talk, in Mbit/s: VMs as PROJECT/NAME or by id, or group:PROJECT/NAME."""

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
    learnt_pairs: int = 0  # of VMs that talk, beside those of `traffic`, which were declared


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


# Traffic

#: Pairs that are declared by hand, and pairs that one answer names.
MOST_PAIRS, MOST_SHOWN = 10_000, 1_000

Said = Literal["topology", "declared", "learnt"]


class SetTraffic(Request):
    """Pairs that talk; a rate of 0 takes a pair back. `whole`: all others are taken back too."""

    pairs: Annotated[list[TrafficBody], Meta(max_length=MOST_PAIRS)]
    whole: bool = False


class PairBody(Reply):
    """Two that talk: how much, who says so, whether both are there, whether it is gone by."""

    source: str
    dest: str
    rate: float
    said: Said
    known: bool
    counts: bool = True  # false: learnt, and declared otherwise


class TrafficMatrixBody(Reply):
    """Who talks with whom, the most first; `pairs_in_all` may be more than are named."""

    pairs: list[PairBody]
    pairs_in_all: int
    generation: int
    changed_at: str | None = None
    changed_by: str = ""


class KeptPair(Struct, omit_defaults=True):
    """A pair as the ledger keeps it, with the ids that its names meant when it was written."""

    a: str
    b: str
    mbit: float
    a_id: str = ""
    b_id: str = ""


# Measuring

#: Pairs of hosts that one measurement takes, and bytes that one probe sends each way.
MOST_PROBED, MOST_PROBE_BYTES = 2_000, 64 * 2**20


class MeasureTopology(Request):
    """Which hosts' agents are to measure the ways between them; all that can, if none is named.

    `bytes` and `seconds` bound what a probe sends each way; `dry_run` only says what would be done.
    """

    hosts: Annotated[list[Name], Meta(max_length=MOST_NODES)] = field(default_factory=list)
    pairs: Annotated[int, Meta(ge=1, le=MOST_PROBED)] = 200
    bytes: Annotated[int, Meta(ge=2**16, le=MOST_PROBE_BYTES)] = 32 * 2**20
    seconds: Annotated[float, Meta(ge=0.1, le=5)] | Annotated[int, Meta(ge=1, le=5)] = 1.0
    dry_run: bool = False


class ProbedPair(Reply):
    """Two hosts: what was measured between them, and what the proposal says. null: not known.

    `latency` is half of the least round trip; `out` is what the second took of the first.
    """

    source: str
    dest: str
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    latency: float | None = None
    median: float | None = None
    out: float | None = None
    back: float | None = None
    proposed_latency: float | None = None
    proposed_bandwidth: float | None = None
    why: str = ""


class UnableBody(Reply):
    """A host whose agent cannot measure, and why."""

    host: str
    why: str


class MeasurementBody(Reply):
    """A measurement of the network between hosts: how far it is, and the topology it proposes.

    The proposal is what `PUT /topology` takes. It has no host of `left_out`; hosts of `inferred`
    were not measured themselves and have the figures of their rack. `islands` above 1: links
    between them could not be measured, and it cannot be applied as it stands.
    """

    id: str
    state: Literal["planned", "running", "done", "cancelled"]
    method: str
    most_s: float  # how long it takes at most
    done: int
    pairs: list[ProbedPair]
    unable: list[UnableBody]
    proposal: ApplyTopology | None = None
    inferred: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    islands: int = 0
