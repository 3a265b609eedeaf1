"""The network: paths against those found by walking every way, and what is refused."""

from itertools import pairwise, permutations
from random import Random

import pytest

from roost.base.errors import InvalidRequest, NotFound
from roost.topology.labels import Labelled, network_of
from roost.topology.network import Link, Network, Node, checked, refuse_islands
from roost.topology.picture import as_svg, as_text
from roost.topology.routes import BYTES_PER_MBIT, Routes

NODES = [Node("core", "router"), Node("r1", "switch"), Node("r2", "switch"), Node("a", "host"),
         Node("b", "host"), Node("c", "host")]  # fmt: skip
LINKS = [
    Link("a", "r1", 10_000, 0.1),
    Link("b", "r1", 10_000, 0.1),
    Link("c", "r2", 1_000, 0.1),
    Link("r1", "core", 40_000, 0.5, 0.9),
    Link("r2", "core", 40_000, 0.5),
]


def test_a_path_passes_several_hops_and_is_as_narrow_as_its_narrowest_link() -> None:
    routes = Routes(checked(NODES, LINKS))
    found = routes.path("a", "c")
    assert found.nodes == ("a", "r1", "core", "r2", "c")
    assert found.latency_ms == pytest.approx(1.2)
    assert found.free_mbit == 1_000
    assert routes.path("c", "a").nodes == found.nodes[::-1]
    assert routes.bytes_per_s("a", "b") == 10_000 * BYTES_PER_MBIT
    assert routes.path("a", "a").links == ()


def test_shared_uplinks_are_told_with_the_pairs_that_need_them() -> None:
    routes = Routes(checked(NODES, LINKS))
    assert [(each.link.a, each.pairs) for each in routes.uplinks()] == [("r1", 2), ("r2", 2)]


def pairs_without(network: Network, link: Link) -> int:
    """Return how many pairs of hosts that reach each other do not without a link."""

    def reached(links: list[Link]) -> set[tuple[str, str]]:
        near = {node.id: {node.id} for node in network.nodes}
        for _ in network.nodes:
            for each in links:
                both = near[each.a] | near[each.b]
                for name in both:
                    near[name] = near[name] | both
        return {(x, y) for x in network.hosts for y in network.hosts if x < y and y in near[x]}

    return len(reached(list(network.links)) - reached([e for e in network.links if e != link]))


def test_pairs_of_an_uplink_are_those_that_it_alone_joins() -> None:
    needed = 0
    for seed in range(60):
        chance = Random(seed)
        switches = [f"s{n}" for n in range(5)]
        pairs = [(x, y) for i, x in enumerate(switches) for y in switches[i + 1 :]]
        links = [Link(x, y, 100) for x, y in pairs if chance.random() < 0.35]
        hosts = [f"h{n}" for n in range(6)]
        links += [Link(host, chance.choice(switches), 100) for host in hosts]
        nodes = [Node(s, "switch") for s in switches] + [Node(h, "host") for h in hosts]
        network = checked(nodes, links)
        for each in Routes(network).uplinks():
            assert each.pairs == pairs_without(network, each.link)
            needed += each.pairs > 0
    assert needed > 60


def test_paths_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.topology.routes.MOST_PATHS", 2)
    routes = Routes(checked(NODES, LINKS))
    for one in "abc":
        for other in "abc":
            assert routes.path(one, other).nodes[-1] == other
            assert len(routes._paths) <= 2


def naive_latency(network: Network, a: str, b: str) -> float | None:
    """Return the lowest latency over every way there is."""
    direct = {frozenset((link.a, link.b)): link.latency_ms for link in network.links}
    others = [node.id for node in network.nodes if node.id not in (a, b)]
    best = None
    for count in range(len(others) + 1):
        for between in permutations(others, count):
            way = (a, *between, b)
            hops = [frozenset(pair) for pair in pairwise(way)]
            if all(hop in direct for hop in hops):
                total = sum(direct[hop] for hop in hops)
                best = total if best is None else min(best, total)
    return best


def test_paths_are_the_best_of_all_ways() -> None:
    for seed in range(30):
        chance = Random(seed)
        names = "abcdef"
        pairs = [(x, y) for i, x in enumerate(names) for y in names[i + 1 :]]
        links = [Link(x, y, 100, chance.randint(1, 9)) for x, y in pairs if chance.random() < 0.5]
        network = checked([Node(name, "host") for name in names], links)
        routes = Routes(network)
        for x, y in pairs:
            found = routes.find(x, y)
            assert (None if found is None else found.latency_ms) == naive_latency(network, x, y)


@pytest.mark.parametrize(
    ("nodes", "links", "says"),
    [
        ([Node("a", "host"), Node("a", "host")], [], "'a' is there twice"),
        ([Node("a", "host")], [Link("a", "x", 1)], "ends at 'x', which is no node"),
        ([Node("a", "host"), Node("s", "switch")], [Link("a", "s", 0)], "0 Mbit/s; it must be"),
        ([Node("a", "host"), Node("s", "switch")], [Link("a", "s", 1, -2)], "-2, not between 0"),
        ([Node("a", "host"), Node("s", "switch")], [Link("a", "s", 1, 0, 2)], "utilisation"),
        ([Node("a", "host"), Node("s", "switch")], [Link("a", "s", float("nan"))], "nan Mbit/s"),
        ([Node("a", "host"), Node("s", "switch")], [Link("a", "s", 1)] * 2, "is there twice"),
        ([Node("a", "host")], [Link("a", "a", 1)], "ends where it begins"),
        ([Node("ghost", "host")], [], "'ghost', which is not registered"),
    ],
    ids=["node twice", "no node", "zero", "negative", "full", "nan", "twice", "loop", "unknown"],
)
def test_what_makes_no_sense_is_refused_with_its_values(
    nodes: list[Node], links: list[Link], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        checked(nodes, links, known_hosts={"a"})


def test_islands_are_refused_by_name_and_switches_alone_are_none() -> None:
    apart = checked([*NODES, Node("d", "host"), Node("lonely", "switch")], LINKS)
    islands = Routes(apart).islands()
    assert islands == [["a", "b", "c"], ["d"]]
    with pytest.raises(InvalidRequest, match="2 islands of hosts"):
        refuse_islands(islands)
    with pytest.raises(InvalidRequest, match="no path between 'a' and 'd'"):
        Routes(apart).path("a", "d")
    with pytest.raises(NotFound, match="no node 'x'"):
        Routes(apart).path("a", "x")


def test_zones_and_racks_make_a_tree() -> None:
    racked = [Labelled("a", "z1", "r1"), Labelled("b", "z1", "r2")]
    hosts = [*racked, Labelled("c", "z2"), Labelled("d")]
    routes = Routes(network_of(hosts))
    assert routes.path("a", "b").nodes == ("a", "rack z1/r1", "zone z1", "rack z1/r2", "b")
    assert len(routes.path("a", "d").links) == 4
    assert routes.islands() == [["a", "b", "c", "d"]]


def test_pictures_name_every_node_and_escape_what_people_typed() -> None:
    more = [Link("<x>", "core", 1), Link("r1", "r2", 5)]
    network = checked([*NODES, Node("<x>", "switch")], [*LINKS, *more])
    text = as_text(network)
    assert text.splitlines()[0] == "core"
    assert "├── " in text
    assert "also: r1 - r2  5 Mbit/s, 0 ms" in text
    svg = as_svg(network)
    assert svg.count("<rect") == len(network.nodes)
    assert svg.count("<line") == len(network.links)
    assert "&lt;x&gt;" in svg
    assert "<x>" not in svg
