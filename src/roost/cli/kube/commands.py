"""`roost kube`: a Kubernetes cluster on this machine, and VMs as pods on any cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import Unavailable
from roost.cli.kube.cluster import with_extra
from roost.cli.show.screen import note, show_document, show_text
from roost.cli.words.loading import Entry, lazy_group, new_app, show_help_when_bare, stand_in
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from roost.kube.cluster.local import LocalCluster, Status

NameOption = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Which of this machine's clusters.")
]


@reports_errors
def up(
    nodes: Annotated[int, typer.Option(min=1, max=20_000, help="Fake nodes.")] = 5,
    cpu: Annotated[str, typer.Option(metavar="CORES", help="Cores of each node.")] = "32",
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of each node.")] = "128GiB",
    zones: Annotated[
        str, typer.Option(metavar="ZONE,...", help="Zones that the nodes stand in by turns.")
    ] = "",
    racks: Annotated[int, typer.Option(min=0, help="Racks in each zone.")] = 0,
    fsync: Annotated[
        bool, typer.Option("--fsync", help="Let etcd wait for the disk, as in production.")
    ] = False,
    name: NameOption = "roost",
    output: OutputOption = None,
) -> None:
    """Start a Kubernetes control plane with fake nodes on loopback."""
    with_extra()
    import asyncio

    from roost.base.clock import RealClock
    from roost.kube.cluster.local import LocalCluster
    from roost.kube.cluster.nodes import NodePool
    from roost.kube.cluster.parts import Setup

    pool = NodePool(
        count=nodes, cpu=cpu, memory=memory, racks=racks,
        zones=tuple(filter(None, zones.split(","))),
    )  # fmt: skip
    clock = RealClock()
    began = clock.monotonic()
    cluster = LocalCluster.named(name, say=note)
    state = asyncio.run(cluster.up(Setup(pools=(pool,), fsync=fsync)))
    if output is not None:
        show_document({"server": state.server, "kubeconfig": str(cluster.kubeconfig)}, output)
        return
    show_text(
        f"Kubernetes {state.version} with {nodes} nodes is up in "
        f"{clock.monotonic() - began:.1f} s\nexport KUBECONFIG={cluster.kubeconfig}"
    )


@reports_errors
def down(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with its logs.")] = False,
    name: NameOption = "roost",
) -> None:
    """Stop a cluster of this machine and remove all that it kept."""
    with_extra()
    import asyncio

    cluster = _there(name)
    asyncio.run(cluster.down(keep=keep))
    show_text(f"{name} is down")


@reports_errors
def status(name: NameOption = "roost", output: OutputOption = None) -> None:
    """Show how every part of a cluster of this machine is."""
    with_extra()
    import asyncio

    import msgspec

    found = asyncio.run(_there(name).status())
    if output is not None:
        show_document(msgspec.to_builtins(found), output)
    else:
        show_text("\n".join(_status_lines(found)))
    if not found.ready:
        raise typer.Exit(Unavailable.exit_code)


def _there(name: str) -> "LocalCluster":
    from roost.kube.cluster.local import LocalCluster

    cluster = LocalCluster.named(name, say=note)
    _ = cluster.state  # says so when there is none
    return cluster


def _status_lines(found: "Status") -> list[str]:
    lines = [f"Kubernetes {found.version} at {found.server}, in {found.folder}"]
    for part in found.parts:
        how = f"runs as {part.pid}" if part.alive else f"HAS ENDED; see {part.log}"
        lines.append(f"  {part.name:24} {how}")
    if found.problem:
        lines.append(f"the API server cannot be asked: {found.problem}")
    else:
        lines.append(f"{found.nodes_ready} of {found.nodes} nodes ready, {found.pods} pods")
    lines.append(f"export KUBECONFIG={found.kubeconfig}")
    return lines


_CLUSTER, _WORK = "A cluster on this machine", "VMs as pods, on any cluster"
_COMMANDS: dict[str, tuple[str, Callable[..., None]]] = {
    "up": (_CLUSTER, up),
    "down": (_CLUSTER, down),
    "status": (_CLUSTER, status),
}
_GROUPS = (
    Entry("vm", "roost.cli.kube.vm:vm", _WORK, "Create, see, move and delete VMs that are pods."),
    Entry(
        "controller",
        "roost.cli.kube.controller:controller",
        _WORK,
        "Keep a pod for every VM, and move VMs instead of evicting them.",
    ),
    Entry(
        "exporter",
        "roost.cli.kube.exporter:exporter",
        _WORK,
        "Serve what nodes and VMs use, as Prometheus reads it.",
    ),
    Entry(
        "scenario",
        "roost.cli.kube.scenario:scenario",
        _WORK,
        "Run a scenario and report where each VM went.",
    ),
    Entry("demo", "roost.cli.kube.demo:demo", _CLUSTER, "Show all of it on a cluster of its own."),
)

kube = new_app(
    "kube",
    help="VMs as pods on Kubernetes, real or local.",
    cls=lazy_group(_GROUPS),
    invoke_without_command=True,
)
kube.callback()(show_help_when_bare)
for _name, (_panel, _function) in _COMMANDS.items():
    kube.command(_name, rich_help_panel=_panel)(_function)
for _entry in _GROUPS:
    kube.command(_entry.name, help=_entry.help, rich_help_panel=_entry.panel)(stand_in)
