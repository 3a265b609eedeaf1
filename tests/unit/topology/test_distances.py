"""Distances in whole numbers: against the paths, loads of links, shares, who is behind a link."""

from random import Random

import pytest

from roost.topology.distances import (
    ENDLESS_KBIT,
    NO_WAY,
    Distances,
    Flow,
    LinkLoads,
    behind,
    kilobits,
    micros,
)
from roost.topology.network import Link, Network, Node, checked
from roost.topology.routes import Routes
from tests.naive.network import ways_from
from tests.unit.topology.test_network import LINKS, NODES


def between(distances: Distances, a: str, b: str) -> tuple[int, int, int]:
    """Return latency, hops and bandwidth between two hosts."""
    one, other = distances.hosts[a], distances.hosts[b]
    if one == other:
        return 0, 0, ENDLESS_KBIT
    walk, at = distances.walk(int(distances.point[one])), distances.point[other]
    us = walk.us[at] + distances.own_us[one] + distances.own_us[other]
    hops = walk.hops[at] + distances.own_hops[one] + distances.own_hops[other]
    own = min(distances.own_kbit[one], distances.own_kbit[other])
    return int(us), int(hops), int(min(walk.kbit[at], own))


def drawn(seed: int) -> Network:
    """Return a network in which ways tie, some hosts have two links and some none."""
    chance = Random(seed)
    switches, hosts = [f"s{n}" for n in range(5)], [f"h{n}" for n in range(7)]
    pairs = [(x, y) for i, x in enumerate(switches) for y in switches[i + 1 :]]
    kinds = ((100.0, 0.5, 0.0), (1000.0, 0.5, 0.5), (10.0, 1.0, 0.0))
    links = [Link(x, y, *chance.choice(kinds)) for x, y in pairs if chance.random() < 0.5]
    for host in hosts:
        above = chance.sample(switches, chance.choice((0, 1, 1, 1, 2)))
        links += [Link(host, switch, *chance.choice(kinds)) for switch in above]
    links.append(Link("h0", "h1", 5.0, 0.1))
    nodes = [Node(s, "switch") for s in switches] + [Node(h, "host") for h in hosts]
    return checked(nodes, links)


def test_distances_are_those_of_the_best_of_all_ways() -> None:
    for seed in range(40):
        network = drawn(seed)
        distances, routes = Distances(network), Routes(network)
        for a in network.hosts:
            for b in network.hosts:
                us, hops, kbit = between(distances, a, b)
                best = ways_from(network, a).get(b)
                if best is None:
                    assert us >= NO_WAY
                    assert distances.way(a, b) is None
                    continue
                assert (us, hops, -kbit) == best, (seed, a, b)
                path = routes.path(a, b)
                assert (us, hops) == (micros(path.latency_ms), len(path.links))
                way = distances.way(a, b)
                assert way is not None
                assert len(way) == hops
                assert sum(micros(network.links[place].latency_ms) for place in way) == us


def test_loads_are_what_is_described_and_what_tenants_send() -> None:
    distances = Distances(checked(NODES, LINKS))
    loads = LinkLoads(distances, [Flow("a", "c", kilobits(500)), Flow("a", "b", kilobits(100))])
    assert [loads.taken(place) for place in range(5)] == [600_000, 100_000, 500_000, 36_500_000,
                                                         500_000]  # fmt: skip
    assert loads.utilisation(3) == pytest.approx(0.9125)
    assert loads.left("b", "c") == kilobits(500)  # of the link of c
    assert loads.left("a", "a") is None
    assert loads.left("a", "nobody") is None
    assert loads.saturated() == []
    more = LinkLoads(distances, [Flow("b", "c", kilobits(4500))])
    assert more.saturated() == [2, 3]
    assert more.left("b", "c") == kilobits(10)  # a hundredth of a link that is taken whole
    assert behind(distances, more.saturated()) == {"c"}  # alone behind both


def test_who_is_behind_a_link_is_on_the_smaller_side() -> None:
    nodes = [*NODES, Node("d", "host"), Node("e", "host")]
    links = [*LINKS, Link("d", "r2", 1000), Link("e", "r2", 1000)]
    distances = Distances(checked(nodes, links))
    assert behind(distances, [3]) == {"a", "b"}
    assert behind(distances, [4]) == {"a", "b"}  # the other three are the fleet
    assert behind(distances, [0]) == {"a"}
    ring = Distances(checked(nodes, [*links, Link("r1", "r2", 10)]))
    assert behind(ring, [3]) == frozenset()  # there is another way
