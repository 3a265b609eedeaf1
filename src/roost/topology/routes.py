"""Paths through a network: the lowest latency first, over as many hops as it takes.

Of two paths of equal latency the one with fewer hops is taken. The bandwidth of a path is what its
narrowest link has left. An uplink is shared by all pairs of hosts whose paths go over it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import rustworkx

from roost.base.errors import InvalidRequest, NotFound
from roost.topology.network import Link, Network

#: What a hop counts beside its latency, so that fewer hops win a tie; in ms.
_HOP_MS = 1e-6
#: Paths that are kept; a large fleet has more pairs of hosts than memory takes.
MOST_PATHS = 50_000
#: Bytes per second of 1 Mbit/s, and of 1 kbit/s.
BYTES_PER_MBIT, BYTES_PER_KBIT = 125_000, 125


@dataclass(frozen=True, slots=True)
class Path:
    """The way between two nodes: what it passes, and what it offers."""

    nodes: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def latency_ms(self) -> float:
        """Return the sum of the latencies."""
        return sum(link.latency_ms for link in self.links)

    @property
    def free_mbit(self) -> float:
        """Return what the narrowest link has left; endless for a node and itself."""
        return min((link.free_mbit for link in self.links), default=float("inf"))

    @property
    def narrowest(self) -> Link | None:
        """Return the link with the least left."""
        return min(self.links, key=lambda link: link.free_mbit, default=None)


@dataclass(frozen=True, slots=True)
class Uplink:
    """A link, and how many pairs of hosts share it."""

    link: Link
    pairs: int


class Routes:
    """Answers questions about paths of one network; paths are kept once they were asked for."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._graph: rustworkx.PyGraph[str, Link] = rustworkx.PyGraph(multigraph=False)
        self._at: Mapping[str, int] = {
            node.id: self._graph.add_node(node.id) for node in network.nodes
        }
        for link in network.links:
            self._graph.add_edge(self._at[link.a], self._at[link.b], link)
        self._paths: dict[tuple[str, str], Path | None] = {}

    def path(self, a: str, b: str) -> Path:
        """Return the path between two nodes; InvalidRequest when there is none."""
        for name in (a, b):
            if name not in self._at:
                raise NotFound(f"the topology has no node {name!r}", node=name)
        found = self.find(a, b)
        if found is None:
            raise InvalidRequest(f"there is no path between {a!r} and {b!r}", source=a, dest=b)
        return found

    def find(self, a: str, b: str) -> Path | None:
        """Return the path between two nodes; None when one is unknown or there is none."""
        if a not in self._at or b not in self._at:
            return None
        key = (a, b) if a <= b else (b, a)
        if key not in self._paths:
            if len(self._paths) >= MOST_PATHS:
                self._paths.clear()
            self._paths[key] = self._search(*key)
        found = self._paths[key]
        if found is not None and key != (a, b):
            found = Path(found.nodes[::-1], found.links[::-1])
        return found

    def _search(self, a: str, b: str) -> Path | None:
        if a == b:
            return Path((a,), ())
        at, to = self._at[a], self._at[b]
        ways = rustworkx.dijkstra_shortest_paths(
            self._graph, at, target=to, weight_fn=lambda link: link.latency_ms + _HOP_MS
        )
        if to not in ways:
            return None
        way = list(ways[to])
        links = tuple(self._graph.get_edge_data(x, y) for x, y in pairwise(way))
        return Path(tuple(self._graph[x] for x in way), links)

    def bytes_per_s(self, a: str, b: str) -> float | None:
        """Return what a path has left, in bytes per second; None when it is not known."""
        found = self.find(a, b)
        if found is None or not found.links:
            return None
        return found.free_mbit * BYTES_PER_MBIT

    def islands(self) -> list[list[str]]:
        """Return the hosts by which others they can reach, the largest island first."""
        hosts = set(self.network.hosts)
        parts = rustworkx.connected_components(self._graph)
        found = [sorted(hosts & {self._graph[x] for x in part}) for part in parts]
        return sorted((each for each in found if each), key=lambda each: (-len(each), each))

    def uplinks(self) -> list[Uplink]:
        """Return the links that no host has for itself, the most shared first."""
        hosts = set(self.network.hosts)
        pairs = self._pairs_by_bridge(hosts)
        shared = [link for link in self.network.links if not {link.a, link.b} & hosts]
        found = [Uplink(link, pairs.get(frozenset((link.a, link.b)), 0)) for link in shared]
        return sorted(found, key=lambda each: (-each.pairs, each.link.a, each.link.b))

    def _pairs_by_bridge(self, hosts: set[str]) -> dict[frozenset[str], int]:
        """Return how many pairs of hosts lose their only path without a link, where any do.

        One walk over the network finds all of them, however many links it has: without the link
        above a node that reaches nothing earlier, the hosts below it are alone.
        """
        graph, found = self._graph, dict[frozenset[str], int]()
        at: dict[int, int] = {}  # when a node was first seen
        for root in graph.node_indices():
            if root in at:
                continue
            order, above = _walk(graph, root, at)
            low, below = {x: at[x] for x in order}, {x: int(graph[x] in hosts) for x in order}
            whole = sum(below.values())
            for x in reversed(order):
                up = above[x]
                for y in graph.neighbors(x):
                    if y != up:
                        low[x] = min(low[x], low[y] if above[y] == x else at[y])
                if up is not None:
                    below[up] += below[x]
                    if low[x] > at[up]:
                        found[frozenset((graph[x], graph[up]))] = below[x] * (whole - below[x])
        return found

    def from_host(self, host: str, others: Sequence[str]) -> dict[str, Path]:
        """Return the paths from one host to others: a map of bandwidth and latency."""
        return {
            other: found
            for other in others
            if other != host and (found := self.find(host, other)) is not None
        }


def _walk(
    graph: "rustworkx.PyGraph[str, Link]", root: int, at: dict[int, int]
) -> tuple[list[int], dict[int, int | None]]:
    """Walk depth first from a node; return nodes as they were met, and above each its parent."""
    order: list[int] = []
    above: dict[int, int | None] = {root: None}
    at[root] = len(at)
    order.append(root)
    ways = [(root, iter(graph.neighbors(root)))]
    while ways:
        node, others = ways[-1]
        for other in others:
            if other not in at:
                at[other] = len(at)
                above[other] = node
                order.append(other)
                ways.append((other, iter(graph.neighbors(other))))
                break
        else:
            ways.pop()
    return order, above
