"""`roost kube scenario`: scenarios on Kubernetes, run, listed and checked."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.cli.kube.cluster import (
    ContextOption,
    KubeconfigOption,
    chosen_kubeconfig,
    with_extra,
)
from roost.cli.show.screen import Output, note, show, show_document, show_text
from roost.cli.words.loading import new_group
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from roost.kube.scenarios.reports import Report
    from roost.kube.scenarios.runner import Cluster
    from roost.kube.script.scenario import Scenario

ScenarioArgument = Annotated[
    str, typer.Argument(metavar="FILE|NAME", help="A scenario file, or one that is shipped.")
]
SeedOption = Annotated[
    int | None, typer.Option(metavar="N", help="Seed of all that is drawn (else the file's).")
]
#: An expectation that is not met.
_NOT_MET = 1
#: Where a cluster is that a run brought up and was told to keep.
KEPT = "scenario"


@reports_errors
def run(
    scenario: ScenarioArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    seed: SeedOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave nodes and VMs as they are at the end.")
    ] = False,
    real_nodes: Annotated[
        bool,
        typer.Option("--real-nodes", help="Also where nodes are real and pods take their room."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Run a scenario and report where each VM went.

    Without a cluster that is named or up on this machine it brings up one of its own, for as long
    as the run lasts. On a cluster that is there it uses a namespace of its own and, when its nodes
    are fake ones, nodes of its own. Ends with 1 when an expectation is not met.
    """
    with_extra()
    from roost.kube.script.scenario import find_scenario, read_scenario

    path = find_scenario(scenario)
    found = read_scenario(path)
    report = asyncio.run(
        _run(found, path.stem, kubeconfig, context, keep=keep, seed=seed, real_nodes=real_nodes)
    )
    _show(report, output)
    if not report.met:
        raise typer.Exit(_NOT_MET)


@reports_errors
def listed(output: OutputOption = None) -> None:
    """List the scenarios that come with roost."""
    with_extra()
    from roost.kube.script.scenario import read_scenario, shipped

    found = {name: read_scenario(path) for name, path in shipped().items()}
    if output not in (None, Output.TABLE):
        documents = [{"name": name, "about": each.about} for name, each in found.items()]
        show_document({"scenarios": documents}, output)
        return
    wide = max(len(name) for name in found)
    show_text("\n".join(f"{name:{wide}}  {each.about}" for name, each in found.items()))


@reports_errors
def check(
    scenario: ScenarioArgument,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of all that is drawn.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Read a scenario and say what it would do, without a cluster."""
    with_extra()
    from roost.kube.script.scenario import all_vms, find_scenario, read_scenario, timeline

    path = find_scenario(scenario)
    found = read_scenario(path)
    seed = found.seed if seed is None else seed
    vms, moments = all_vms(found.vms, seed, "default"), timeline(found, seed)
    if output not in (None, Output.TABLE):
        show_document(
            {
                "scenario": path.stem,
                "about": found.about,
                "seed": seed,
                "nodes": len(found.node_names),
                "vms": len(vms),
                "moments": len(moments),
                "duration_s": float(found.duration),
                "descheduler": found.descheduler is not None,
            },
            output,
        )
        return
    chased = ", with the descheduler" if found.descheduler is not None else ""
    show_text(
        f"{path}: {len(found.node_names) or 'the'} nodes, {len(vms)} VMs and {len(moments)} "
        f"moments in {max([found.duration, *(m.at for m in moments)]):g} s{chased}; it is sound"
    )


scenario = new_group(
    "scenario", "Run a scenario and report where each VM went.",
    {"run": run, "list": listed, "check": check},
)  # fmt: skip


async def _run(
    found: "Scenario",
    name: str,
    kubeconfig: Path | None,
    context: str | None,
    *,
    keep: bool,
    **options: Any,
) -> "Report":
    from roost.base.clock import RealClock
    from roost.kube.scenarios.runner import run as run_scenario

    clock = RealClock()
    async with _cluster(kubeconfig, context, keep) as cluster:
        return await run_scenario(
            found, cluster, name=name, keep=keep, clock=clock, say=note, **options
        )


@asynccontextmanager
async def _cluster(
    kubeconfig: Path | None, context: str | None, keep: bool
) -> "AsyncIterator[Cluster]":
    """Yield the cluster that is meant, or one that lasts as long as the run."""
    from roost.base.clock import RealClock
    from roost.kube.base.client import Kube
    from roost.kube.cluster.local import LocalCluster, clusters_folder
    from roost.kube.scenarios.runner import Cluster, own_cluster

    chosen = chosen_kubeconfig(kubeconfig, context)
    usual = os.environ.get("KUBECONFIG", "")
    if chosen is None and context is None and not usual:
        folder = clusters_folder() / KEPT if keep else None
        async with own_cluster(RealClock(), note, folder=folder, keep=keep) as cluster:
            yield cluster
        if keep:
            note(f"export KUBECONFIG={cluster.kubeconfig}")
            note(f"end it with: roost kube down --name {KEPT}")
        return
    if chosen is None and usual and os.pathsep not in usual:
        chosen = Path(usual)
    async with await Kube.open(chosen, context=context) as kube:
        local = LocalCluster(chosen.parent) if chosen is not None else None
        if local is not None and (not local.exists or local.state.server != kube.server):
            local = None
        yield Cluster(kube, chosen, local, context=context)


def _show(report: "Report", output: Output | None) -> None:
    if output not in (None, Output.TABLE):
        import msgspec

        document = msgspec.to_builtins(report)
        show_document({**document, "met": report.met}, output)
        return
    from roost.cli.kube.report import report as tables

    show(tables(report))
