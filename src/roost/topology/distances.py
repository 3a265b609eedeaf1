"""How far hosts are from each other, in whole numbers: latency, hops and bandwidth that is left.

Most hosts hang on one switch, so what is between two hosts is what is between their switches and
the two links of their own. One walk from a switch answers for all hosts at once, and is kept. The
way is that of lowest latency, then of fewest hops, then the one with most left.

Latency is in microseconds, bandwidth in kbit/s: decisions are made of whole numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from roost.topology.network import Link, Network

Int64Array = npt.NDArray[np.int64]

#: What is farther, or has less: no way at all, and no bandwidth.
NO_WAY = 2**40
#: What a way without a link has left.
ENDLESS_KBIT = 2**50
#: Walks that are kept.
MOST_WALKS = 4_096
#: Saturated links between switches whose two sides are looked for; each is a walk of its own.
MOST_LOOKED = 256


def micros(ms: float) -> int:
    """Return milliseconds as whole microseconds."""
    return round(ms * 1000)


def kilobits(mbit: float) -> int:
    """Return Mbit/s as whole kbit/s."""
    return round(mbit * 1000)


@dataclass(frozen=True, slots=True)
class Walk:
    """The ways from one point of the network to all others, by number of the point."""

    us: Int64Array
    hops: Int64Array
    kbit: Int64Array
    before: Int64Array  # the point before on the way; -1: it begins there, or there is none
    over: Int64Array  # the link that comes from there, by its place among the network's


class Distances:
    """What is between hosts of one network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        degree: dict[str, int] = {}
        for link in network.links:
            for end in (link.a, link.b):
                degree[end] = degree.get(end, 0) + 1
        hosts = set(network.hosts)
        alone = {
            name
            for link in network.links
            for name, other in ((link.a, link.b), (link.b, link.a))
            if name in hosts and degree[name] == 1 and not (other in hosts and degree[other] == 1)
        }
        #: Points are what a way passes, or begins at: all nodes but hosts with a link to one node.
        points = [node.id for node in network.nodes if node.id not in alone]
        self._points = {name: at for at, name in enumerate(points)}
        self._beside: list[list[tuple[int, int]]] = [[] for _ in points]
        self.hosts: dict[str, int] = {name: at for at, name in enumerate(network.hosts)}
        count = len(self.hosts)
        #: Of each host: its point, and what lies between the two.
        self.point = np.zeros(count, np.int64)
        self.own_us, self.own_hops = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.own_kbit = np.full(count, ENDLESS_KBIT, np.int64)
        self._own_link = np.full(count, -1, np.int64)
        for name, at in self.hosts.items():
            if name in self._points:
                self.point[at] = self._points[name]
        for place, link in enumerate(network.links):
            self._hang(place, link, alone)
        self._only = {
            int(self._own_link[at]): name for name, at in self.hosts.items() if name in alone
        }
        self._walks: dict[int, Walk] = {}

    def _hang(self, place: int, link: Link, alone: set[str]) -> None:
        for name, other in ((link.a, link.b), (link.b, link.a)):
            if name in alone:
                at = self.hosts[name]
                self.point[at], self._own_link[at] = self._points[other], place
                self.own_us[at], self.own_hops[at] = micros(link.latency_ms), 1
                self.own_kbit[at] = kilobits(link.free_mbit)
                return
        a, b = self._points[link.a], self._points[link.b]
        self._beside[a].append((b, place))
        self._beside[b].append((a, place))

    def walk(self, point: int) -> Walk:
        """Return the ways from a point to all others."""
        found = self._walks.get(point)
        if found is None:
            if len(self._walks) >= MOST_WALKS:
                self._walks.clear()
            found = self._walks[point] = self._walked(point)
        return found

    def _walked(self, start: int) -> Walk:
        links, count = self.network.links, len(self._beside)
        us, hops = [NO_WAY] * count, [NO_WAY] * count
        kbit, before, over = [0] * count, [-1] * count, [-1] * count
        us[start], hops[start], kbit[start] = 0, 0, ENDLESS_KBIT
        waiting = [(0, 0, -ENDLESS_KBIT, start)]
        while waiting:
            key_us, key_hops, key_kbit, at = heappop(waiting)
            if (key_us, key_hops, -key_kbit) != (us[at], hops[at], kbit[at]):
                continue  # a better way was found since
            for other, place in self._beside[at]:
                link = links[place]
                left = min(kbit[at], kilobits(link.free_mbit))
                way = (us[at] + micros(link.latency_ms), hops[at] + 1, -left)
                if way < (us[other], hops[other], -kbit[other]):
                    us[other], hops[other], kbit[other] = way[0], way[1], left
                    before[other], over[other] = at, place
                    heappush(waiting, (*way, other))
        return Walk(
            np.array(us, np.int64),
            np.array(hops, np.int64),
            np.array(kbit, np.int64),
            np.array(before, np.int64),
            np.array(over, np.int64),
        )

    def host_of(self, place: int) -> str | None:
        """Return the host that has no link but this one; None if it is of no such host."""
        return self._only.get(place)

    def way(self, a: str, b: str) -> list[int] | None:
        """Return the links between two hosts by their places; None where no way is known."""
        one, other = self.hosts.get(a), self.hosts.get(b)
        if one is None or other is None:
            return None
        if one == other:
            return []
        walk = self.walk(int(self.point[one]))
        at = int(self.point[other])
        if walk.us[at] >= NO_WAY:
            return None
        found = [int(place) for place in self._own_link[[one, other]] if place >= 0]
        while walk.over[at] >= 0:
            found.append(int(walk.over[at]))
            at = int(walk.before[at])
        return found


@dataclass(frozen=True, slots=True)
class Flow:
    """What two hosts send each other for their VMs, in kbit/s."""

    a: str
    b: str
    kbit: int


class LinkLoads:
    """What tenants' flows take of every link, beside what is taken as it was described."""

    def __init__(self, distances: Distances, flows: Iterable[Flow] = ()) -> None:
        self._distances = distances
        self.tenants = np.zeros(len(distances.network.links), np.int64)
        for flow in flows:
            way = distances.way(flow.a, flow.b)
            if way:
                self.tenants[way] += flow.kbit

    def taken(self, place: int) -> int:
        """Return what is taken of a link in all, in kbit/s."""
        link = self._distances.network.links[place]
        described = kilobits(link.bandwidth_mbit * link.utilisation)
        return described + int(self.tenants[place])

    def utilisation(self, place: int) -> float:
        """Return the share of a link that is taken; above 1 it is asked for more than it has."""
        return self.taken(place) / kilobits(self._distances.network.links[place].bandwidth_mbit)

    def left(self, a: str, b: str) -> int | None:
        """Return what the narrowest link between two hosts has left, in kbit/s.

        Of a link that is taken whole a hundredth is left: whatever is sent there still arrives.
        None where no way is known, or none is needed.
        """
        way = self._distances.way(a, b)
        return min(map(self._left, way)) if way else None

    def _left(self, place: int) -> int:
        most = kilobits(self._distances.network.links[place].bandwidth_mbit)
        return max(1, most // 100, most - self.taken(place))

    def saturated(self) -> list[int]:
        """Return the places of links that are asked for more than they have."""
        links = self._distances.network.links
        return [
            place
            for place, link in enumerate(links)
            if self.taken(place) > kilobits(link.bandwidth_mbit)
        ]


def behind(distances: Distances, places: Iterable[int]) -> frozenset[str]:
    """Return the hosts that reach most others over one of these links alone.

    Without the link the network falls in two; those on the side with fewer hosts are behind it. A
    link beside which there is another way has nobody behind it.
    """
    network, found = distances.network, set[str]()
    hosts, looked = set(network.hosts), 0
    for place in sorted(set(places)):
        link = network.links[place]
        if (only := distances.host_of(place)) is not None:
            found.add(only)
        elif looked < MOST_LOOKED:
            looked += 1
            side = _side(network, link)
            if side is not None:
                own = side & hosts
                found |= own if 2 * len(own) <= len(hosts) else hosts - own
    return frozenset(found)


def _side(network: Network, without: Link) -> set[str] | None:
    """Return the nodes on one side of a link; None if its ends are joined without it."""
    beside: dict[str, list[str]] = {}
    for link in network.links:
        if link is not without:
            beside.setdefault(link.a, []).append(link.b)
            beside.setdefault(link.b, []).append(link.a)
    seen, waiting = {without.a}, [without.a]
    while waiting:
        for other in beside.get(waiting.pop(), ()):
            if other == without.b:
                return None
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen
