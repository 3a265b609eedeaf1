"""A measured topology: which pairs are measured, and the tree that explains them."""

from collections.abc import Callable
from random import Random

import pytest

from roost.base.errors import InvalidRequest
from roost.topology.labels import Labelled, network_of
from roost.topology.measuring import Choice, Measured, Proposal, choose, propose
from roost.topology.network import Link, Network, checked
from roost.topology.routes import Routes

Propose = Callable[[list[Labelled], list[Measured]], Proposal]


def fleet(zones: int, racks: int, hosts: int) -> list[Labelled]:
    return [
        Labelled(f"h-{z}-{r}-{h}", f"z{z}", f"r{r}")
        for z in range(zones)
        for r in range(racks)
        for h in range(hosts)
    ]


def truth(hosts: list[Labelled], seed: int) -> Routes:
    """Return a network of zones and racks with figures of its own on every link."""
    random = Random(seed)
    tree = network_of(hosts)
    links = [
        Link(e.a, e.b, random.choice([1e3, 1e4, 2.5e4]), random.uniform(0.01, 2.0))
        for e in tree.links
    ]
    return Routes(Network(tree.nodes, tuple(links)))


def measured(routes: Routes, choice: Choice) -> list[Measured]:
    """Return what perfect probes find."""
    found = []
    for a, b in choice.pairs:
        path = routes.path(a, b)
        found.append(Measured(a, b, path.latency_ms, path.free_mbit))
    return found


def check_explains(make: Propose, hosts: list[Labelled], seed: int) -> None:
    """Check the law: every measured pair gets what was measured, and no link more than it has."""
    real = truth(hosts, seed)
    figures = measured(real, choose(hosts, 500))
    made = make(hosts, figures)
    assert made.islands == 1
    proposed = Routes(checked(made.network.nodes, made.network.links))
    has = {(link.a, link.b): link.bandwidth_mbit for link in real.network.links}
    for link in made.network.links:
        assert link.bandwidth_mbit <= has[link.a, link.b]
    for each in figures:
        path = proposed.path(each.a, each.b)
        assert path.free_mbit == each.mbit
        assert path.latency_ms == pytest.approx(each.latency_ms, rel=0.02)
        assert made.paths[each.a, each.b] == pytest.approx((path.latency_ms, path.free_mbit))


FLEETS = [(1, 1, 2), (1, 1, 8), (2, 2, 2), (1, 3, 4), (3, 2, 3), (2, 5, 6)]


@pytest.mark.parametrize("shape", FLEETS, ids=str)
def test_the_tree_explains_every_measured_pair_and_promises_no_more(
    shape: tuple[int, int, int],
) -> None:
    for seed in range(3):
        check_explains(propose, fleet(*shape), seed)


def test_a_tree_of_the_least_that_passed_is_found_out() -> None:
    def of_the_least(hosts: list[Labelled], figures: list[Measured]) -> Proposal:
        made = propose(hosts, figures)
        least = min(each.mbit or 0.0 for each in figures)
        links = tuple(Link(e.a, e.b, least, e.latency_ms) for e in made.network.links)
        network = Network(made.network.nodes, links)
        return Proposal(network, made.inferred, made.left_out, made.islands, made.paths)

    with pytest.raises(AssertionError):
        check_explains(of_the_least, fleet(2, 2, 2), 1)


def test_all_pairs_of_a_few_hosts_are_measured() -> None:
    found = choose([Labelled(name) for name in "abcdefgh"], 200)
    assert (len(found.pairs), found.method) == (28, "all pairs")
    assert choose([Labelled("a")], 200).pairs == ()


@pytest.mark.parametrize("shape", [(2, 10, 10), (4, 8, 40), (1, 60, 20)], ids=str)
def test_a_sample_of_many_hosts_tells_every_rack_apart(shape: tuple[int, int, int]) -> None:
    hosts = fleet(*shape)
    found = choose(hosts, 500)
    assert len(found.pairs) <= 500
    assert len(set(found.pairs)) == len(found.pairs)
    assert all(a < b for a, b in found.pairs)
    assert found == choose(list(reversed(hosts)), 500)
    made = propose(hosts, measured(truth(hosts, 1), found))
    assert (made.islands, made.left_out) == (1, ())
    assert len(made.network.hosts) == len(hosts)
    asked = {name for pair in found.pairs for name in pair}
    assert set(made.inferred) == {each.name for each in hosts} - asked
    most = max(sum(name in pair for pair in found.pairs) for name in asked)
    assert most <= 16  # no host probes for long


def test_too_many_racks_for_the_pairs_that_are_allowed_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="2400 hosts in 120 racks take 360 pairs at least"):
        choose(fleet(1, 120, 20), 200)


def test_what_was_not_measured_is_left_out_and_named() -> None:
    hosts = [Labelled("a", "z", "r1"), Labelled("b", "z", "r1"), Labelled("c", "z", "r2")]
    hosts += [Labelled("d", "z", "r2"), Labelled("x", "z", "r3")]
    figures = [Measured("a", "b", 0.2, 900.0), Measured("c", "d", 0.2, None)]
    made = propose(hosts, [*figures, Measured("a", "c", None, None)])
    assert made.network.hosts == ("a", "b")
    assert made.left_out == ("c", "d", "x")
    assert [(e.a, e.b, e.bandwidth_mbit, e.latency_ms) for e in made.network.links] == [
        ("a", "rack z/r1", 900.0, 0.1),
        ("b", "rack z/r1", 900.0, 0.1),
    ]
    assert list(made.paths) == [("a", "b")]


def test_racks_between_which_nothing_was_measured_are_islands() -> None:
    hosts = [Labelled("a", "z", "1"), Labelled("b", "z", "1")]
    hosts += [Labelled("c", "z", "2"), Labelled("d", "z", "2")]
    figures = [Measured("a", "b", 0.2, 900.0), Measured("c", "d", 0.2, 900.0)]
    assert propose(hosts, figures).islands == 2
    assert propose(hosts, []).network == Network((), ())


def test_a_host_that_was_not_measured_has_the_least_of_its_rack() -> None:
    hosts = [Labelled(name, "z", "r") for name in "abcd"]
    figures = [Measured("a", "b", 0.2, 900.0), Measured("b", "c", 0.4, 100.0)]
    made = propose(hosts, figures)
    assert (made.inferred, made.left_out) == (("d",), ())
    assert [link.bandwidth_mbit for link in made.network.links] == [900.0, 900.0, 100.0, 100.0]
