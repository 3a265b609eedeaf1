"""`roost topology`: the network between hosts, its paths, and a picture of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from roost.base.errors import InvalidRequest
from roost.cli.words.completing import complete_hosts
from roost.cli.words.loading import new_group
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.topology.network import Network
    from roost.wire.topology import TopologyBody


@asks_server
def apply(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML or JSON: nodes, links, traffic.")
    ],
) -> None:
    """Replace the network by the one in a file; Mbit/s and ms."""
    from roost.cli.show import topology
    from roost.wire.text.strictyaml import parse_strictly, read_text
    from roost.wire.topology import ApplyTopology

    body = parse_strictly(read_text(file), str(file), ApplyTopology)
    found = session.client.apply_topology(body)
    session.show(found, topology.summary(found))


@asks_server
def show_(session: Session) -> None:
    """Show nodes, links and shared uplinks; one assumed from zones and racks if none is known."""
    from roost.cli.show import topology

    found = session.client.get_topology()
    session.show(found, topology.summary(found), topology.links(found))


@asks_server
def path(
    session: Session,
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A node.", autocompletion=complete_hosts)
    ],
    dest: Annotated[
        str, typer.Argument(metavar="TO", help="A node.", autocompletion=complete_hosts)
    ],
) -> None:
    """Show the path between two nodes: its hops, latency and the bandwidth that is left."""
    from roost.cli.show import topology

    found = session.client.topology_path(source, dest)
    session.show(found, topology.path(found))


@asks_server
def map_(
    session: Session,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture as SVG.")
    ] = None,
) -> None:
    """Draw the network as a tree in the terminal, or as SVG."""
    from roost.topology.picture import as_svg, as_text

    found = session.client.get_topology()
    network = _network(found)
    if svg is None:
        session.show(found, Text(as_text(network)))
        return
    try:
        svg.write_text(as_svg(network), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"the picture cannot be written to {str(svg)!r}: {error}") from error
    session.show(found, Text(f"the picture is in {svg}"))


def _network(found: "TopologyBody") -> "Network":
    from roost.topology.network import Link, Network, Node

    return Network(
        tuple(Node(n.id, n.type, n.capacity, n.load) for n in found.nodes),
        tuple(Link(e.source, e.dest, e.bandwidth, e.latency, e.utilization) for e in found.links),
    )


topology = new_group(
    "topology",
    "The network between hosts: links, paths, a picture.",
    {"apply": apply, "show": show_, "path": path, "map": map_},
)
