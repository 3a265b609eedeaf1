"""The topology of the network: applied whole, with a generation, and known to every process.

Where nobody has described one, a tree of zones and racks is shown as assumed; costs of moves go by
a declared one alone.
"""

import asyncio
import logging
from collections.abc import Hashable, Sequence

import msgspec
from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest
from roost.base.timestamps import timestamp
from roost.control.memory.follower import Follower
from roost.control.memory.roster import Roster
from roost.control.topology.matrix import LEARNT, TrafficMatrix, names_of
from roost.control.topology.routes import topology_routes
from roost.control.topology.wiring import Wiring
from roost.ledger.schema.changes import TOPOLOGIES, TRAFFIC, Changes
from roost.ledger.schema.rows import Event, TopologyRow
from roost.ledger.schema.tables import topologies
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import Plus, find_row
from roost.ledger.writes.transaction import Tx, row_json
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.topology.labels import Labelled, network_of
from roost.topology.network import Link, Network, Node, Traffic, checked, refuse_islands
from roost.topology.routes import BYTES_PER_KBIT, Routes
from roost.wire.topology import (
    ApplyTopology,
    LinkBody,
    NodeBody,
    PathBody,
    SetTraffic,
    TopologyBody,
    TrafficMatrixBody,
    UplinkBody,
)

log = logging.getLogger("roost.topology")

#: There is one network.
FLEET = "fleet"
#: How often loads of links are made anew while VMs come, go and move, in seconds.
LOADS_S = 10.0
#: Uplinks that one answer names.
_MOST_UPLINKS = 50

_decode = msgspec.json.Decoder(ApplyTopology).decode


class Topology(Part):
    """Keeps the network between hosts, and answers questions about paths."""

    follows = (TOPOLOGIES, TRAFFIC)

    def __init__(self, store: Store, roster: Roster, follower: Follower, clock: Clock) -> None:
        self._store, self._roster, self._clock = store, roster, clock
        self._follower = follower
        self.matrix, self.wiring = TrafficMatrix(roster), Wiring(roster)
        self._told = (-1, 0.0)  # changes of the matrix, and when the engine was told of them
        self._telling: asyncio.Task[None] | None = None
        self._row: TopologyRow | None = None
        self._read: TopologyRow | None = None  # the row that the routes are of
        self._routes: Routes | None = None
        self._reading = asyncio.Lock()

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return topology_routes(self)

    def load(self, connection: Connection) -> None:
        """Load the network from one consistent view."""
        found = find_row(connection, topologies, {"id": FLEET})
        self._row = None if found is None else TopologyRow(**found)
        self.matrix.load(connection)
        self._read = self._row
        self._routes = None if self._row is None else _routes_of(self._row)
        self.wiring.put(None if self._routes is None else self._routes.network)

    def follow(self, event: Event, changes: Changes) -> None:
        """Take note of a network that was applied; it is read when somebody asks for it."""
        for row in changes.of(TOPOLOGIES).values():
            self._row = row
        self.matrix.follow(changes)

    def followed(self) -> None:
        """Tell the engine of another network at once, and of other loads of links now and then."""
        if self._row is None or (self._telling is not None and not self._telling.done()):
            return
        seen, at = self._told
        talkers = self._roster.talkers
        old = (talkers.pairs or talkers.learnt) and self._clock.monotonic() - at >= LOADS_S
        if self._row is not self._read or seen != self.matrix.changes or old:
            self._telling = asyncio.create_task(self.tell())

    async def tell(self) -> None:
        """Tell the engine of the newest network and of what its links carry."""
        self._told = (self.matrix.changes, self._clock.monotonic())
        known = await self.known()
        await self.wiring.refresh(None if known is None else known.network)

    async def known(self) -> Routes | None:
        """Return the routes of the newest network, read in a thread: it may be a large document."""
        async with self._reading:
            if (row := self._row) is not self._read:
                routes = None if row is None else await asyncio.to_thread(_routes_of, row)
                self._read, self._routes = row, routes
            return self._routes

    def examine(self, connection: Connection, found: Examination) -> None:
        """Tell the doctor of hosts that the topology does not name, and of those that are gone."""
        row = self._row
        routes = self._routes if row is self._read else None if row is None else _routes_of(row)
        if routes is None:
            return
        named = set(routes.network.hosts)
        registered = {entry.name for entry in self._roster.hosts.values()}
        found.count("topology", len(named))
        for name in sorted(registered - named):
            found.note("topology", f"host {name!r} is not in the topology")
        for name in sorted(named - registered):
            found.note("topology", f"the topology names host {name!r}, which is gone")

    # For costs

    def bandwidth(self, source: int, target: int) -> float | None:
        """Return what a declared path between hosts has left, by fleet rows, in bytes a second.

        What VMs send each other over it is taken from it.
        """
        if self.wiring.loads is None:
            return None
        names = self._roster.fleet.hosts.names
        left = self.wiring.loads.links.left(names[source], names[target])
        return None if left is None else float(left * BYTES_PER_KBIT)

    def links(self, source: int, target: int) -> Sequence[Hashable]:
        """Return the links of a declared path between hosts, by fleet rows, beside their own."""
        if self._routes is None:
            return ()
        names = self._roster.fleet.hosts.names
        found = self._routes.find(names[source], names[target])
        # The first and last are the hosts' own, for which there are limits already.
        return () if found is None else tuple((each.a, each.b) for each in found.links[1:-1])

    # Asking

    async def get(self) -> TopologyBody:
        """Return the network: the declared one, or one assumed from zones and racks."""
        known, row = await self.known(), self._read
        return await asyncio.to_thread(self._body, known or self._assumed(), row)

    async def path(self, source: str, dest: str) -> PathBody:
        """Return the path between two nodes."""
        known = await self.known()
        found = await asyncio.to_thread(lambda: (known or self._assumed()).path(source, dest))
        narrow = found.narrowest
        return PathBody(
            source=source,
            dest=dest,
            nodes=list(found.nodes),
            hops=len(found.links),
            latency_ms=round(found.latency_ms, 6),
            free_mbit=round(found.free_mbit, 3) if found.links else None,
            narrowest=None if narrow is None else link_body(narrow),
        )

    def _assumed(self) -> Routes:
        entries = list(self._roster.hosts.values())
        return Routes(
            network_of(
                Labelled(entry.name, entry.inventory.zone, entry.inventory.rack)
                for entry in entries
            )
        )

    def _body(self, known: Routes, row: TopologyRow | None) -> TopologyBody:
        found = known.network
        named = set(found.hosts)
        registered = sorted(entry.name for entry in self._roster.hosts.values())
        return TopologyBody(
            source="labels" if row is None else "declared",
            generation=0 if row is None else row.generation,
            nodes=[node_body(each) for each in found.nodes],
            links=[link_body(each) for each in found.links],
            traffic=self.matrix.pairs(),
            learnt_pairs=self.matrix.learnt,
            uplinks=[
                UplinkBody(
                    source=each.link.a,
                    dest=each.link.b,
                    bandwidth=each.link.bandwidth_mbit,
                    utilization=each.link.utilisation,
                    pairs=each.pairs,
                )
                for each in known.uplinks()[:_MOST_UPLINKS]
            ],
            missing=[name for name in registered if name not in named],
            changed_at=None if row is None else timestamp(row.changed_ms),
            changed_by="" if row is None else row.changed_by,
        )

    # Changing

    async def apply(self, body: ApplyTopology, who: Principal) -> TopologyBody:
        """Replace the network; one that makes no sense is refused, with what is wrong."""
        registered = {entry.name for entry in self._roster.hosts.values()}
        if not body.nodes:
            raise InvalidRequest("a topology without nodes says nothing")

        def judge() -> Routes:
            made = Routes(network(body, registered))
            refuse_islands(made.islands())
            return made

        made = await asyncio.to_thread(judge)
        document = row_json(body)

        def change(tx: Tx) -> TopologyRow:
            fields = {"document": document, "changed_ms": tx.at_ms, "changed_by": who.name}
            found = tx.change(topologies, {"id": FLEET}, generation=Plus(1), **fields)
            if found is None:
                found = tx.insert(topologies, {"id": FLEET, "generation": 1, **fields})
            row = TopologyRow(**found)
            note = f"{len(body.nodes)} nodes, {len(body.links)} links"
            self.matrix.describe(tx, body.traffic, who.name)
            tx.event("topology.applied", "topology", {"topologies": {FLEET: row}}, note=note)
            return row

        row = await self._store.write(change, who.name)
        await self.tell_when_heard()
        return await asyncio.to_thread(self._body, made, row)

    # Traffic

    async def traffic(self) -> TrafficMatrixBody:
        """Return who talks with whom; VMs of learnt pairs by the names that they have now."""
        found = self.matrix.body()
        learnt = {ref for p in found.pairs if p.said == LEARNT for ref in (p.source, p.dest)}
        if learnt:
            names = await self._store.read(lambda connection: names_of(connection, learnt))
            for pair in found.pairs:
                if pair.said == LEARNT:
                    pair.known = pair.source in names and pair.dest in names
                    pair.source = names.get(pair.source, pair.source)
                    pair.dest = names.get(pair.dest, pair.dest)
        return found

    async def set_traffic(self, body: SetTraffic, who: Principal) -> TrafficMatrixBody:
        """Declare pairs that talk, or take them back."""
        await self._store.write(lambda tx: self.matrix.declare(tx, body, who.name), who.name)
        await self.tell_when_heard()
        return await self.traffic()

    async def tell_when_heard(self) -> None:
        """Tell the engine of what this process has just written: who asks next goes by it."""
        await self._follower.catch_up()
        if self._row is not None:
            await self.tell()


def network(body: ApplyTopology, known_hosts: set[str] | None = None) -> Network:
    """Return the network of a body; refuses what makes no sense."""
    return checked(
        [Node(n.id, n.type, n.capacity, n.load) for n in body.nodes],
        [Link(e.source, e.dest, e.bandwidth, e.latency, e.utilization) for e in body.links],
        [Traffic(t.source, t.dest, t.rate) for t in body.traffic],
        known_hosts,
    )


def _routes_of(row: TopologyRow) -> Routes | None:
    try:
        return Routes(network(_decode(row.document)))
    except (msgspec.DecodeError, InvalidRequest) as error:
        # Another release may write what this one does not know: then nothing is known here.
        log.warning("the topology cannot be read: %s", error)
        return None


def node_body(node: Node) -> NodeBody:
    """Return a node as it is shown and applied."""
    return NodeBody(id=node.id, type=node.kind, capacity=node.capacity_mbit, load=node.load_mbit)


def link_body(link: Link) -> LinkBody:
    """Return a link as it is shown and applied."""
    return LinkBody(
        source=link.a,
        dest=link.b,
        bandwidth=link.bandwidth_mbit,
        latency=link.latency_ms,
        utilization=link.utilisation,
    )
