"""A network made of zones and racks, where nobody described one: a tree with usual numbers.

host - rack - zone - core. The numbers are those of an ordinary data centre, and are told as
assumed wherever they are shown; nothing that matters is decided by them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from roost.topology.network import Link, Network, Node

CORE = "core"
#: Bandwidth in Mbit/s and latency in ms from host to rack, rack to zone, zone to core.
HOST_LINK, RACK_LINK, ZONE_LINK = (10_000.0, 0.05), (40_000.0, 0.1), (100_000.0, 0.5)


class Labelled(NamedTuple):
    """A host and where it is."""

    name: str
    zone: str = ""
    rack: str = ""


def network_of(hosts: Iterable[Labelled]) -> Network:
    """Return the tree of zones and racks; what is not labelled hangs one level higher."""
    nodes, links = [Node(CORE, "router")], list[Link]()
    known = {CORE}

    def add(name: str, above: str, numbers: tuple[float, float], host: bool = False) -> str:
        if name not in known:
            known.add(name)
            nodes.append(Node(name, "host" if host else "switch"))
            links.append(Link(name, above, *numbers))
        return name

    for each in sorted(hosts):
        above = CORE
        if each.zone:
            above = add(f"zone {each.zone}", above, ZONE_LINK)
        if each.rack:
            above = add(f"rack {each.zone}/{each.rack}".replace(" /", " "), above, RACK_LINK)
        add(each.name, above, HOST_LINK, host=True)
    return Network(tuple(nodes), tuple(links))
