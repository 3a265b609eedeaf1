"""Nodes and links of a network as nouns, and what must hold of them.

A link goes both ways. What is wrong is told with the values that are: a node that is there twice,
a link to nowhere, a bandwidth of zero, a negative latency, a host that nobody registered.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from roost.base.errors import InvalidRequest

NodeKind = Literal["host", "switch", "router"]

#: Bandwidth of a link, in Mbit/s, and latency, in ms, at most.
MOST_MBIT, MOST_MS = 1e9, 1e6
#: Islands and hosts that a refusal names.
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Node:
    """A host, switch or router; `capacity_mbit` 0: what it can switch is not known."""

    id: str
    kind: NodeKind
    capacity_mbit: float = 0.0
    load_mbit: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two nodes, both ways; `utilisation` is the share that is taken, 0 to 1."""

    a: str
    b: str
    bandwidth_mbit: float
    latency_ms: float = 0.0
    utilisation: float = 0.0

    @property
    def free_mbit(self) -> float:
        """Return what is left of the bandwidth."""
        return self.bandwidth_mbit * (1.0 - self.utilisation)


@dataclass(frozen=True, slots=True)
class Traffic:
    """How much two VMs talk, in Mbit/s."""

    a: str
    b: str
    mbit: float


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes and links that fit together."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    traffic: tuple[Traffic, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names of hosts, in order."""
        return tuple(node.id for node in self.nodes if node.kind == "host")


def checked(
    nodes: Sequence[Node],
    links: Sequence[Link],
    traffic: Sequence[Traffic] = (),
    known_hosts: Collection[str] | None = None,
) -> Network:
    """Return a network; refuses one that makes no sense, with the values that are wrong."""
    ids: set[str] = set()
    for node in nodes:
        if node.id in ids:
            raise InvalidRequest(f"node {node.id!r} is there twice", node=node.id)
        ids.add(node.id)
        _amount(f"the capacity of node {node.id!r}", node.capacity_mbit, 0, MOST_MBIT)
        _amount(f"the load of node {node.id!r}", node.load_mbit, 0, MOST_MBIT)
        if known_hosts is not None and node.kind == "host" and node.id not in known_hosts:
            raise InvalidRequest(
                f"the topology names host {node.id!r}, which is not registered",
                host=node.id,
                hint="Maybe its type is switch or router, or its agent has not joined yet.",
            )
    pairs: set[frozenset[str]] = set()
    for link in links:
        _check_link(link, ids, pairs)
    for each in traffic:
        _amount(f"the traffic between {each.a!r} and {each.b!r}", each.mbit, 0, MOST_MBIT)
    return Network(tuple(nodes), tuple(links), tuple(traffic))


def _check_link(link: Link, ids: set[str], pairs: set[frozenset[str]]) -> None:
    name = f"link {link.a!r} - {link.b!r}"
    for end in (link.a, link.b):
        if end not in ids:
            raise InvalidRequest(f"{name} ends at {end!r}, which is no node", node=end)
    if link.a == link.b:
        raise InvalidRequest(f"{name} ends where it begins", node=link.a)
    if (pair := frozenset((link.a, link.b))) in pairs:
        raise InvalidRequest(f"{name} is there twice", source=link.a, dest=link.b)
    pairs.add(pair)
    if not isfinite(link.bandwidth_mbit) or not 0 < link.bandwidth_mbit <= MOST_MBIT:
        raise InvalidRequest(
            f"the bandwidth of {name} is {link.bandwidth_mbit:g} Mbit/s; it must be above 0",
            hint="Maybe leave the link out if it is down.",
            source=link.a,
            dest=link.b,
        )
    _amount(f"the latency of {name}", link.latency_ms, 0, MOST_MS)
    _amount(f"the utilisation of {name}", link.utilisation, 0, 1)


def _amount(what: str, value: float, least: float, most: float) -> None:
    if not isfinite(value) or not least <= value <= most:
        raise InvalidRequest(f"{what} is {value:g}, not between {least:g} and {most:g}")


def refuse_islands(islands: Sequence[Sequence[str]]) -> None:
    """Refuse a network whose hosts cannot all reach each other."""
    if len(islands) < 2:
        return
    told = "; ".join(", ".join(sorted(each)[:_MOST_NAMED]) for each in islands[:_MOST_NAMED])
    raise InvalidRequest(
        f"the topology has {len(islands)} islands of hosts that cannot reach each other: {told}",
        islands=len(islands),
        hint="Maybe a link between two switches is missing.",
    )
