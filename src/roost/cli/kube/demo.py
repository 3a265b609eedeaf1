"""`roost kube demo`: VMs as pods on a real Kubernetes with fake nodes, and a tour of what they do.

The stage is a cluster of this machine; `roost.cli.demo.runner` runs it.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import Conflict
from roost.base.units import format_bytes
from roost.cli.demo.runner import Screen, Tour, Try, play, typed_command
from roost.cli.kube.cluster import with_extra
from roost.cli.show.screen import note
from roost.cli.words.opening import chosen_output
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from roost.base.clock import Clock
    from roost.kube.scenarios.reports import Move
    from roost.kube.scenarios.runner import Run

#: Which of this machine's clusters it is, and the namespace of its VMs.
NAME = "demo"
SCENARIO = "demo"
#: What moves, and where somebody would like it: there is no room for it there.
MOVED, WANTED = "db-1", "demo-node-4"
EVICTED = "web-1"
_SHOWN = ("node_cpu_usage_ratio", "node_memory_usage_ratio", "node_cpu_pressure_psi",
          "node_vm_count")  # fmt: skip


@reports_errors
def demo(
    serve: Annotated[
        bool | None,
        typer.Option(
            "--serve/--once",
            help="Stay up after the tour, or end (default: stay on a terminal, and end with "
            "ONCE=1 or without one).",
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Run VMs as pods on a real Kubernetes with fake nodes, and show what they do.

    The cluster's own scheduler places them; one moves while it would run, an eviction becomes a
    migration, and metrics show it. Everything is on loopback; nothing is left running at the end.
    Needs the programs that `make kube-tools` builds (once, about 8 minutes).
    """
    with_extra()
    play(_cluster, chosen_output(output), serve)


@asynccontextmanager
async def _cluster(clock: "Clock", screen: Screen) -> AsyncIterator[Tour]:
    """Set a stage of a cluster with its nodes, VMs and metrics."""
    from roost.kube.cluster.local import clusters_folder
    from roost.kube.metering.app import serving
    from roost.kube.metering.exporter import Exporter
    from roost.kube.scenarios.runner import own_cluster, running
    from roost.kube.script.scenario import find_scenario, read_scenario

    scenario = read_scenario(find_scenario(SCENARIO))
    screen.lines(
        "roost kube demo: Kubernetes' own programs as processes of this machine, fake nodes, and",
        "VMs as pods. Everything is on loopback and ends with this command.",
    )
    began = clock.monotonic()
    async with (
        own_cluster(clock, note, folder=clusters_folder() / NAME) as cluster,
        running(scenario, cluster, name=SCENARIO, namespace=NAME, clock=clock, say=note) as made,
        serving(Exporter(made.kube, NAME, clock=clock), clock=clock) as exporter,
    ):
        yield KubeTour(clock, screen, began, made, exporter.url)


class KubeTour(Tour):
    """The tour of a cluster whose nodes are ready."""

    def __init__(
        self, clock: "Clock", screen: Screen, began: float, made: "Run", exporter: str
    ) -> None:
        super().__init__(clock, screen, began)
        self._made, self._exporter = made, exporter
        self.steps = (self.place, self.migrate, self.evict, self.metrics)
        self.summary |= {
            "server": made.kube.server,
            "version": made.report.version,
            "kubeconfig": str(made.cluster.kubeconfig),
        }

    def tries(self) -> Sequence[Try]:
        """Return what can be tried while it is up."""
        from roost.kube.cluster.tools import tools_folder

        roost = f"{typed_command()} kube"
        return (
            (f"export KUBECONFIG={self._made.cluster.kubeconfig}", ""),
            (f"{roost} vm list -n {NAME}", "who is where, and why one waits"),
            (f"{roost} vm create more --cpu 4 --memory 16GiB --wait -n {NAME}", ""),
            (f"{roost} vm migrate app-1 --wait -n {NAME}", "the scheduler chooses"),
            (f"{roost} vm migrations -n {NAME}", "wanted against actual"),
            (f"{roost} vm check -n {NAME}", "does every rule hold?"),
            (f"{roost} scenario run heat-and-chase", "the descheduler, 90 s"),
            (f"{tools_folder() / 'kubectl'} get rvm,pods -n {NAME} -o wide", ""),
            (f"curl -s {self._exporter}/metrics", ""),
        )

    async def place(self) -> None:
        """Let the scheduler place the VMs."""
        from roost.cli.kube import report

        self._screen.heading(
            f"Placement by kube-scheduler {self._made.report.version.removeprefix('v')}",
            "Each VM is a VirtualMachine object; the controller makes a launcher pod for it, "
            "without a node. The scheduler sees what pods ask for; what VMs use is another matter.",
        )
        await self._made.place()
        found = self._made.report
        self._screen.show(report.nodes(found.nodes, found.vms), "")
        self._screen.show(report.pending(found.pending), "")
        self._screen.lines(
            f"{len(found.vms)} VMs, answered for in {found.placed_s:.1f} s, heard by watch. The "
            f"web VMs are spread over the zones, the db VMs on different nodes."
        )
        self.summary["placed"] = {place.vm: place.node for place in found.vms if place.node}
        self.summary["pending"] = {place.vm: place.reason for place in found.pending}

    async def migrate(self) -> None:
        """Ask a VM to move to a node that has no room for it."""
        self._screen.heading(
            f"A migration: {MOVED} shall go to {WANTED}",
            "A second pod that excludes the node it leaves, a live copy in rounds, then the first "
            "pod goes. Where to is the scheduler's choice; the wish is kept beside it.",
        )
        await self._made.player.migrate(MOVED, WANTED)
        move = await self._made.watching.moved(MOVED)
        self.summary["migration"] = self._show_move(move)
        if move.elsewhere:
            self._screen.lines(
                f"{WANTED} has no room for {MOVED}: the scheduler chose {move.actual} instead."
            )

    async def evict(self) -> None:
        """Let somebody evict a VM."""
        self._screen.heading(
            f"An eviction: somebody drains the node of {EVICTED}",
            "The API server asks roost's webhook, which refuses (429) and marks the VM: it moves "
            "in the background. The descheduler knows these words.",
        )
        said = await self._made.player.evict(EVICTED)
        self._screen.lines(f"the API server says: 429 {said}", "")
        move = await self._made.watching.moved(EVICTED)
        self.summary["eviction"] = {"said": said, **self._show_move(move)}
        again = await self._made.player.evict(EVICTED)
        self._screen.lines(f"asked again, it says:  429 {again}")
        self.summary["eviction"]["again"] = again

    async def metrics(self) -> None:
        """Read what the exporter tells."""
        import aiohttp

        self._screen.heading(
            "Metrics", f"What Prometheus would read at {self._exporter}/metrics, a part of it."
        )
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self._exporter}/metrics") as answer,
        ):
            page = await answer.text()
        lines = [line for line in page.splitlines() if line.startswith(_SHOWN)]
        self._screen.lines(*(f"  {line}" for line in lines))
        self.summary["metrics"] = dict(line.rsplit(" ", 1) for line in lines)

    def _show_move(self, move: "Move") -> dict[str, Any]:
        if move.phase != "Succeeded":
            raise Conflict(f"{move.vm} did not move: {move.reason}")
        self._screen.lines(
            f"{move.vm}: from {move.source}, wanted {move.wanted or 'anywhere else'}, "
            f"now on {move.actual}",
            f"{move.rounds} rounds, {format_bytes(move.copied_bytes)} copied, "
            f"{move.downtime_ms:.0f} ms of downtime; the copy is a model, "
            f"{self._made.scenario.migration.speed:g} times as fast as a real one",
        )
        return {
            "vm": move.vm,
            "from": move.source,
            "wanted": move.wanted,
            "to": move.actual,
            "rounds": move.rounds,
            "copied_bytes": move.copied_bytes,
            "downtime_ms": move.downtime_ms,
        }
