"""`roost topology`: the network between hosts, its paths, and a picture of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from roost.base.errors import Conflict, InvalidRequest, Unavailable
from roost.cli.show.screen import note
from roost.cli.words.completing import complete_hosts
from roost.cli.words.loading import new_group
from roost.cli.words.selecting import SelectorOption, named_hosts
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.topology.network import Network
    from roost.wire.topology import MeasurementBody, TopologyBody


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


@asks_server
def traffic(
    session: Session,
    source: Annotated[
        str | None, typer.Argument(metavar="FROM", help="PROJECT/NAME, an id, group:PROJECT/NAME.")
    ] = None,
    dest: Annotated[str | None, typer.Argument(metavar="TO", help="The other one.")] = None,
    rate: Annotated[
        float | None, typer.Argument(metavar="MBIT", help="Mbit/s; 0 takes the pair back.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Declare the pairs of a YAML or JSON file."),
    ] = None,
) -> None:
    """Show which VMs talk, or declare that two do: they are then placed near each other."""
    from roost.cli.show import topology
    from roost.wire.text.strictyaml import parse_strictly, read_text
    from roost.wire.topology import SetTraffic, TrafficBody

    if file is not None and source is not None:
        raise InvalidRequest("either two VMs or a file is given, not both")
    if file is not None:
        found = session.client.set_traffic(parse_strictly(read_text(file), str(file), SetTraffic))
    elif source is None:
        found = session.client.get_traffic()
    elif dest is None or rate is None:
        raise InvalidRequest(
            "two VMs and a rate are needed", hint="Maybe roost topology traffic p/web p/db 200."
        )
    else:
        pair = TrafficBody(source=source, dest=dest, rate=rate)
        found = session.client.set_traffic(SetTraffic(pairs=[pair]))
    session.show(found, topology.traffic(found))


@asks_server
def measure(
    session: Session,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts", metavar="A,B,...", help="Measure between these (default: all that can).",
            autocompletion=complete_hosts,
        ),
    ] = None,
    selector: SelectorOption = None,
    pairs: Annotated[
        int, typer.Option(min=1, max=2000, metavar="N", help="Pairs that are measured at most.")
    ] = 200,
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes that one probe sends each way at most.")
    ] = "32MiB",
    seconds: Annotated[
        float, typer.Option(min=0.1, max=5, help="Seconds that it sends each way at most.")
    ] = 1.0,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write the proposal, for `topology apply`."),
    ] = None,
    applies: Annotated[
        bool, typer.Option("--apply", help="Apply the proposal at once if nothing is unknown.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which pairs would be measured, and send nothing.")
    ] = False,
) -> None:  # fmt: skip
    """Let agents with --probe-port measure the ways between hosts; proposes a topology.

    The topology stays what it is unless --apply is given.
    """
    from roost.base.units import parse_bytes
    from roost.cli.show import topology
    from roost.cli.watch.measurewatch import watch_measurement
    from roost.wire.topology import MeasureTopology

    named = [name for name in (hosts or "").split(",") if name]
    if named or selector is not None:
        named = named_hosts(session, named, selector)
    body = MeasureTopology(
        hosts=named,
        pairs=pairs,
        bytes=parse_bytes(size, "--size"),
        seconds=seconds,
        dry_run=dry_run,
    )
    found = session.client.measure_topology(body)
    if not dry_run:
        found = watch_measurement(session, found)
    session.show(found, topology.measurement(found), topology.probed(found))
    if found.proposal is None:
        if not dry_run:
            raise Unavailable("nothing could be measured", measurement=found.id)
        return
    if file is not None:
        _write_proposal(file, found)
    if applies:
        if found.left_out or found.islands > 1 or any(p.state != "done" for p in found.pairs):
            raise Conflict(
                "not everything could be measured: the proposal is not applied",
                hint="Maybe write it to a --file, complete it and apply that.",
            )
        session.client.apply_topology(found.proposal)
        note("the proposal is applied")
    elif file is not None:
        note(f"the proposal is in {file}; roost topology apply {file} makes it the topology")


def _write_proposal(file: Path, found: "MeasurementBody") -> None:
    import msgspec
    import yaml

    said = [f"# Measured: {found.method}. Mbit/s and ms: the most and the soonest that was seen."]
    if found.inferred:
        said.append(f"# Not measured, with figures of their rack: {', '.join(found.inferred)}")
    if found.left_out:
        said.append(f"# Left out, nothing is known of them: {', '.join(found.left_out)}")
    text = yaml.safe_dump(msgspec.to_builtins(found.proposal), sort_keys=False)
    try:
        file.write_text("\n".join([*said, text]), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"the proposal cannot be written to {str(file)!r}: {error}") from error


def _network(found: "TopologyBody") -> "Network":
    from roost.topology.network import Link, Network, Node

    return Network(
        tuple(Node(n.id, n.type, n.capacity, n.load) for n in found.nodes),
        tuple(Link(e.source, e.dest, e.bandwidth, e.latency, e.utilization) for e in found.links),
    )


topology = new_group(
    "topology",
    "The network between hosts: links, paths, a picture.",
    {
        "apply": apply,
        "show": show_,
        "path": path,
        "map": map_,
        "measure": measure,
        "traffic": traffic,
    },
)
