"""A topology that is measured: which pairs of hosts to measure, and the tree that explains them.

The tree is that of zones and racks. Of a link that several measured pairs cross, the bandwidth is
the most that was seen to pass: in a tree every pair then has exactly what was measured, and no link
more than it really has. Latencies are shared out so that the paths add up to what was measured. A
link that no measured pair crosses is left out: what is unknown is not made up (ADR-0082).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from roost.base.errors import InvalidRequest
from roost.topology.labels import Labelled, network_of
from roost.topology.network import Link, Network, Node

#: All pairs of so many hosts are measured.
MOST_MESH = 8
#: Hosts of one rack that are measured when not all can be: as many as there is room for.
_OF_A_RACK = (8, 5, 3, 2)
#: Rounds in which latencies are shared out over links.
_ROUNDS = 400

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The pairs to measure, and how they were chosen."""

    pairs: tuple[Pair, ...]
    method: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found between two hosts; None is unknown."""

    a: str
    b: str
    latency_ms: float | None
    mbit: float | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A network that explains what was measured, and what is missing or assumed in it."""

    network: Network
    inferred: tuple[str, ...]  # hosts that have the figures of their rack
    left_out: tuple[str, ...]  # hosts of which nothing is known
    islands: int
    paths: Mapping[Pair, tuple[float, float]]  # latency and bandwidth that the network gives


def choose(hosts: Iterable[Labelled], most: int) -> Choice:
    """Return the pairs to measure: all of a few hosts, else a sample of racks and zones.

    In a rack each chosen host is measured with the next two, so is each rack with the next two of
    its zone, and each zone with the next two: enough to tell every link. Refuses fewer than that.
    """
    known = sorted(hosts)
    every = [(one.name, other.name) for one, other in combinations(known, 2)]
    if len(known) <= MOST_MESH and len(every) <= most:
        return Choice(tuple(every), "all pairs")
    zones: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for each in known:
        zones[each.zone][each.rack].append(each.name)
    largest = max((len(names) for racks in zones.values() for names in racks.values()), default=0)
    pairs = list[Pair]()
    for of_rack in (largest, *(k for k in _OF_A_RACK if k < largest)):
        pairs = _sample(zones, of_rack)
        if len(pairs) <= most:
            racks = sum(map(len, zones.values()))
            what = "every host" if of_rack == largest else f"up to {of_rack} hosts"
            return Choice(
                tuple(pairs), f"a sample: {what} of each of {racks} racks in {len(zones)} zones"
            )
    raise InvalidRequest(
        f"{len(known)} hosts in {sum(map(len, zones.values()))} racks take {len(pairs)} pairs at "
        f"least, and {most} may be measured",
        hint="Maybe allow more pairs, or measure fewer hosts at a time.",
    )


def _sample(zones: Mapping[str, Mapping[str, Sequence[str]]], of_rack: int) -> list[Pair]:
    found: dict[Pair, None] = {}

    def add(groups: Sequence[Sequence[str]]) -> None:
        """Measure each group with the next two; not by the same member each time."""
        for step in (1, 2):
            for at, group in enumerate(groups):
                other = groups[(at + step) % len(groups)]
                pair = tuple(sorted((group[step % len(group)], other[-step % len(other)])))
                if group is not other:
                    found[pair[0], pair[1]] = None

    for racks in zones.values():
        chosen = [_spread(names, of_rack) for names in racks.values()]
        for names in chosen:
            add([[name] for name in names])
        add(chosen)
    add(
        [
            _spread([name for names in racks.values() for name in names], 5)
            for racks in zones.values()
        ]
    )
    return list(found)


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Return so many of the names, far apart."""
    return (
        [names[at * len(names) // count] for at in range(count)] if count < len(names) else [*names]
    )


def propose(hosts: Iterable[Labelled], measured: Iterable[Measured]) -> Proposal:
    """Return the network that explains what was measured between hosts."""
    known = sorted(hosts)
    tree = network_of(known)
    above = {link.a: link.b for link in tree.links}
    found = [(each, _crossed(above, each.a, each.b)) for each in measured]
    latency = _shared_out([(c, e.latency_ms) for e, c in found if e.latency_ms is not None])
    mbit: dict[str, float] = {}
    for each, crossed in found:
        for name in crossed if each.mbit else ():
            mbit[name] = max(mbit.get(name, 0.0), each.mbit or 0.0)
    links = {n: Link(n, above[n], mbit[n], round(latency[n], 6)) for n in mbit if n in latency}
    inferred = _infer(known, links)
    nodes = [node for node in tree.nodes if _is_linked(node.id, links)]
    names = {node.id for node in nodes}
    return Proposal(
        Network(tuple(nodes), tuple(links[n] for n in above if n in links)),
        tuple(inferred),
        tuple(each.name for each in known if each.name not in names),
        _islands(nodes, links.values()),
        {
            (each.a, each.b): (
                sum(links[name].latency_ms for name in crossed),
                min(links[name].bandwidth_mbit for name in crossed),
            )
            for each, crossed in found
            if crossed and all(name in links for name in crossed)
        },
    )


def _crossed(above: Mapping[str, str], a: str, b: str) -> list[str]:
    """Return the links between two hosts of a tree, each by its lower end."""

    def climb(name: str) -> list[str]:
        found = [name]
        while found[-1] in above:
            found.append(above[found[-1]])
        return found

    one, other = climb(a), climb(b)
    return [n for n in one if n not in other] + [n for n in other if n not in one]


def _shared_out(paths: Sequence[tuple[Sequence[str], float]]) -> dict[str, float]:
    """Return latencies of links, none below 0, that add up to those of the paths.

    What a path has too much or too little is shared out evenly over its links, again and again:
    where paths do not tell two links apart, they come out alike.
    """
    latency = dict.fromkeys((name for path, _ in paths for name in path), 0.0)
    for _ in range(_ROUNDS):
        change: dict[str, list[float]] = defaultdict(list)
        for path, wanted in paths:
            short = (wanted - sum(latency[name] for name in path)) / max(1, len(path))
            for name in path:
                change[name].append(short)
        for name, each in change.items():
            latency[name] = max(0.0, latency[name] + sum(each) / len(each))
    return latency


def _infer(known: Sequence[Labelled], links: dict[str, Link]) -> list[str]:
    """Give hosts that were not measured the least bandwidth and the usual latency of their rack."""
    racks: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for each in known:
        if each.rack and each.name in links:
            racks[each.zone, each.rack].append(links[each.name])
    inferred = [e for e in known if e.name not in links and racks.get((e.zone, e.rack))]
    for each in inferred:
        there = racks[each.zone, each.rack]
        links[each.name] = Link(
            each.name,
            there[0].b,
            min(link.bandwidth_mbit for link in there),
            median(link.latency_ms for link in there),
        )
    return [each.name for each in inferred]


def _is_linked(name: str, links: Mapping[str, Link]) -> bool:
    return name in links or any(link.b == name for link in links.values())


def _islands(nodes: Sequence[Node], links: Iterable[Link]) -> int:
    """Return how many parts the network has: in a forest, one for each link that is missing."""
    return len(nodes) - len(list(links))
