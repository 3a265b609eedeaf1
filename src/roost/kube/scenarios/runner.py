"""Running a scenario: nodes and VMs are made, time is played, and a report is written.

On a cluster of its own, which lasts as long as the run, or on one that is there. There it keeps to
a namespace and, on a cluster of fake nodes, to nodes of its own, and takes all of it away again;
nodes that others made are never changed.
"""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from roost.base.clock import Clock, RealClock
from roost.base.errors import Conflict, InvalidRequest, NotFound, Unavailable
from roost.kube.base.client import LEASES, NAMESPACES, NODES, PODS, VMS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.lease import HOME, lease_name
from roost.kube.base.mirror import Mirror
from roost.kube.base.moments import moment_ms
from roost.kube.base.names import GROUP, NODE_KIND, NODE_LABEL
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster, add_nodes
from roost.kube.cluster.nodes import is_ready
from roost.kube.cluster.parts import Setup
from roost.kube.control import Controller, ControllerSettings, mark_namespace
from roost.kube.moving.cooldown import CoolDown
from roost.kube.moving.migrating import MigrationSettings
from roost.kube.moving.webhook import Webhook
from roost.kube.scenarios.chasing import chasing, exporting
from roost.kube.scenarios.descheduler import Descheduler
from roost.kube.scenarios.playing import Play
from roost.kube.scenarios.reports import (
    Evictions,
    Report,
    judge,
    returns_of,
    spread_of,
    time_to_balance,
)
from roost.kube.scenarios.watching import Say, Watching
from roost.kube.script.scenario import Migrating, Scenario, timeline
from roost.kube.vms.compliance import placed, violations
from roost.kube.vms.crd import install_crd
from roost.kube.vms.launchers import LAUNCHERS, LauncherSettings
from roost.kube.vms.launching import LaunchSettings
from roost.kube.vms.vmlist import cleanup_all

#: On the nodes of a run, with its namespace: its VMs go there and nowhere else.
RUN_LABEL = f"{GROUP}/scenario"
#: What counts as even when a scenario does not say.
EVEN_WITHIN = 0.10
NODES_S = 30.0
#: How fresh the lease of a controller is while it runs.
_FRESH_MS = 60_000


class Cluster(Struct):
    """Where a scenario runs."""

    kube: Kube
    kubeconfig: Path | None  # for the descheduler, which reads one itself
    local: LocalCluster | None = None  # a cluster of this machine
    own: bool = False  # it lasts as long as the run
    context: str | None = None  # of the kubeconfig; None: the current one


@asynccontextmanager
async def own_cluster(
    clock: Clock, say: Say, *, folder: Path | None = None, keep: bool = False
) -> AsyncIterator[Cluster]:
    """Bring up a cluster for one run; it is taken down at the end, unless it is to be kept."""
    with tempfile.TemporaryDirectory(prefix="roost-kube-") as temporary:
        cluster = LocalCluster(folder or Path(temporary) / "cluster", clock=clock, say=say)
        await cluster.up(Setup(pools=()), attached=not keep)
        try:
            async with await cluster.connect() as kube:
                yield Cluster(kube, cluster.kubeconfig, cluster, own=True)
        finally:
            if not keep:
                await asyncio.shield(cluster.down())


async def run(
    scenario: Scenario,
    cluster: Cluster,
    *,
    name: str,
    seed: int | None = None,
    keep: bool = False,
    real_nodes: bool = False,
    clock: Clock | None = None,
    say: Say = lambda _: None,
) -> Report:
    """Run a scenario on a cluster and return what came of it."""
    async with running(
        scenario, cluster, name=name, seed=seed, keep=keep, real_nodes=real_nodes,
        clock=clock, say=say,
    ) as made:  # fmt: skip
        await made.place()
        await made.play()
        return made.report


@asynccontextmanager
async def running(
    scenario: Scenario,
    cluster: Cluster,
    *,
    name: str,
    namespace: str = "",
    seed: int | None = None,
    keep: bool = False,
    real_nodes: bool = False,
    clock: Clock | None = None,
    say: Say = lambda _: None,
) -> AsyncIterator["Run"]:
    """Make everything that a scenario needs, and take it away at the end."""
    namespace = namespace or f"scenario-{name[:30].strip('-')}-{secrets.token_hex(3)}"
    report = Report(
        scenario=name, about=scenario.about, seed=scenario.seed if seed is None else seed,
        own_cluster=cluster.own, server=cluster.kube.server, namespace=namespace,
    )  # fmt: skip
    made = Run(scenario, cluster, report, clock or RealClock(), say)
    made.real_nodes = real_nodes
    try:
        await made.begin()
        yield made
    finally:
        await asyncio.shield(made.end(keep=keep))


class Run:
    """One run of a scenario: begin, place, play, end."""

    watching: Watching
    player: Play
    webhook: Webhook | None = None
    real_nodes = False  # True: also where pods take room that others may need

    def __init__(
        self, scenario: Scenario, cluster: Cluster, report: Report, clock: Clock, say: Say
    ) -> None:
        self.scenario, self.cluster, self.report = scenario, cluster, report
        self.kube, self.clock, self._say = cluster.kube, clock, say
        self.namespace = report.namespace
        self._running = AsyncExitStack()
        self._own_nodes: list[str] = []
        self._made_namespace = False

    # Beginning and end

    async def begin(self) -> None:
        """Make nodes and a namespace, and start the controller and the webhook."""
        self.report.version = str((await self.kube.call("GET", "/version")).get("gitVersion", ""))
        there = (await self.kube.list(NODES)).items
        fake = self.cluster.local is not None or any(_is_fake(node) for node in there)
        if not fake and not self.real_nodes:
            raise Conflict(
                f"the nodes of {self.kube.server} are real ones: VMs of a scenario would take room "
                "on them",
                hint="Maybe another cluster (`roost kube up`), or --real-nodes when that is meant.",
            )
        labels = await self._make_nodes(there, fake=fake)
        names = self._own_nodes or [node["metadata"]["name"] for node in there]
        if not names:
            raise Unavailable("there is no node", hint="Maybe give the scenario some: nodes.")
        # Not marked: the webhook of an earlier controller may be registered for all that are, and
        # with that one gone it refuses every eviction.
        await self.kube.ensure(NAMESPACES, {"metadata": {"name": self.namespace}})
        self._made_namespace = True
        if await self._is_controlled():
            await mark_namespace(self.kube, self.namespace)
            self.report.notes.append(
                "the controller that runs on this cluster was used: migrations went by its "
                "settings, not by the scenario's"
            )
            vms, pods, nodes = await self._mirrors()
        else:
            vms, pods, nodes = await self._control({NODE_LABEL: NODE_KIND} if fake else {})
        self.watching = Watching(vms, pods, nodes, self.namespace, names, self.clock, self._say)
        self.player = Play(
            self.kube, self.watching, node_labels=labels, own_nodes=bool(self._own_nodes),
            seed=self.report.seed, clock=self.clock,
        )  # fmt: skip
        if self._own_nodes:
            await nodes.until(lambda: self._nodes_ready(nodes), NODES_S, "ready nodes")

    async def _is_controlled(self) -> bool:
        """Say whether a controller of this namespace or of all runs: two would disagree."""
        for name in (lease_name(None), lease_name(self.namespace)):
            try:
                spec = (await self.kube.get(LEASES, name, HOME)).get("spec") or {}
            except NotFound:
                continue
            if spec.get("holderIdentity") and spec.get("renewTime"):
                age_ms = self.clock.wall_ms() - moment_ms(spec["renewTime"])
                if age_ms < _FRESH_MS:
                    return True
        return False

    async def _control(self, node_selector: dict[str, str]) -> tuple[Mirror, Mirror, Mirror]:
        """Start a controller for the run, and the webhook where the cluster can reach it."""
        wanted = self.scenario.migration
        controller = Controller(
            self.kube,
            self.namespace,
            settings=ControllerSettings(
                launch=LaunchSettings(launcher=LauncherSettings(node_selector=node_selector)),
                migration=_settings(wanted),
                lease=None,
            ),
            clock=self.clock,
        )
        self._running.push_async_callback(controller.stop)
        await controller.start()
        await controller.until_leading()
        if self.cluster.local is not None:
            self.webhook = Webhook(self.kube, namespace=self.namespace, clock=self.clock)
            self._running.push_async_callback(self.webhook.stop)
            await self.webhook.start()
        else:
            self.report.notes.append(
                "evictions are answered as this cluster does: it cannot reach a webhook of ours"
            )
        return controller.vms, controller.pods, controller.nodes

    async def _mirrors(self) -> tuple[Mirror, Mirror, Mirror]:
        await install_crd(self.kube, self.clock)
        made = (
            Mirror(self.kube, VMS, self.namespace, clock=self.clock),
            Mirror(self.kube, PODS, self.namespace, labels=LAUNCHERS, clock=self.clock),
            Mirror(self.kube, NODES, clock=self.clock),
        )
        for mirror in made:
            self._running.push_async_callback(mirror.stop)
            await mirror.start()
        return made

    async def _make_nodes(self, there: Sequence[Object], *, fake: bool) -> dict[str, str]:
        """Add the scenario's nodes where that is possible; return the label of the run's nodes."""
        if not self.scenario.nodes:
            return {}
        if not fake:
            self.report.notes.append(
                "the scenario's nodes were not added: this is no cluster of fake nodes; "
                f"its own {len(there)} nodes were used"
            )
            return {}
        names = self.scenario.node_names
        if taken := sorted(set(names) & {node["metadata"]["name"] for node in there}):
            raise Conflict(
                f"there is a node {taken[0]} already",
                hint="Maybe another scenario runs here, or was left by --keep.",
            )
        label = {RUN_LABEL: self.namespace}
        pools = [
            msgspec.structs.replace(pool, labels={**pool.labels, **label})
            for pool in self.scenario.nodes
        ]
        self._say(f"adding {len(names)} nodes")
        self._own_nodes = names
        await add_nodes(self.kube, pools)
        return label

    def _nodes_ready(self, nodes: Mirror) -> bool:
        found = (nodes.get(name) for name in self._own_nodes)
        return all(node is not None and is_ready(node) for node in found)

    async def end(self, *, keep: bool) -> None:
        """Take away what was made."""
        if keep or self.cluster.own:
            await self._running.aclose()
            if keep:
                self._say(
                    f"kept: namespace {self.namespace} and what is in it; `roost kube controller` "
                    "goes on with it"
                )
            return
        try:
            if self._made_namespace:
                # With the controller: it lets go what is half way between two nodes.
                await cleanup_all(self.kube, self.namespace, clock=self.clock)
        finally:
            await self._running.aclose()
            if self._made_namespace:
                await self.kube.delete(NAMESPACES, self.namespace)
            await each_of(self._own_nodes, lambda node: self.kube.delete(NODES, node))

    # Playing

    async def place(self) -> None:
        """Create the VMs, and wait until the scheduler has answered for each."""
        watching, report = self.watching, self.report
        total = sum(len(pool.names()) for pool in self.scenario.vms)
        self._say(f"creating {total} VMs in namespace {self.namespace}")
        watching.begin()
        await self.player.create(self.scenario.vms)
        await self._settled()
        report.placed_s = round(watching.now_s, 3)
        report.vms = watching.places()
        waiting = len(report.pending)
        self._say(f"{total - waiting} VMs on nodes, {waiting} waiting, {watching.now_s:.1f} s")
        report.nodes_before = report.nodes = watching.node_states()
        report.spread_before = spread_of(report.nodes_before)

    async def play(self) -> None:
        """Let the scenario's time pass, and complete the report."""
        moments = timeline(self.scenario, self.report.seed)
        async with AsyncExitStack() as beside:
            chaser = await self._beside(beside)
            self.watching.begin()
            await self.player.play(moments, float(self.scenario.duration))
            self.report.seconds = round(self.watching.now_s, 3)
            if chaser is not None:
                self.report.descheduler_rounds = chaser.told().rounds
        # Without the descheduler, or there might be no end of it.
        await self._settled()
        self.watching.sample()
        self._complete()

    async def _settled(self) -> None:
        if trouble := await self.watching.settled():
            self.report.notes.append(trouble)

    async def _beside(self, stack: AsyncExitStack) -> Descheduler | None:
        """Start what the scenario has beside it."""
        wanted, avoid = self.scenario.descheduler, self.scenario.avoid_pressure
        if avoid is not None and not self._own_nodes:
            self.report.notes.append("no node was tainted: they are not the scenario's own")
            avoid = None
        exporter = ""
        if wanted is not None or avoid is not None:
            exporter = await stack.enter_async_context(
                exporting(self.kube, self.namespace, self.clock, avoid)
            )
        if wanted is None:
            return None
        if self.cluster.kubeconfig is None:
            raise InvalidRequest(
                "the descheduler needs a kubeconfig file", hint="Maybe --kubeconfig FILE."
            )
        self._say(f"the descheduler looks every {wanted.every:g} s ({wanted.source})")
        return await stack.enter_async_context(
            chasing(
                self.kube, self.cluster.kubeconfig, self.cluster.context, wanted, self.clock,
                namespace=self.namespace, exporter=exporter,
                selector=f"{RUN_LABEL}={self.namespace}" if self._own_nodes else "",
                nodes=[use.name for use in self.watching.uses()],
            )
        )  # fmt: skip

    def _complete(self) -> None:
        report, expected, watching = self.report, self.scenario.expect, self.watching
        report.vms = watching.places()
        report.nodes = watching.node_states()
        report.spread = spread_of(report.nodes)
        report.moves = sorted(watching.moves.values(), key=lambda m: (m.started_s, m.vm))
        report.returns = returns_of(report.moves)
        report.samples = watching.samples
        within = EVEN_WITHIN if expected.balanced_within is None else expected.balanced_within
        report.time_to_balance_s = time_to_balance(report.samples, within)
        broken = violations(placed(watching.vms()), watching.node_labels())
        report.violations = [
            f"{each.vm}, {each.rule}: {each.wrong}" for each in broken if each.hard
        ]
        report.evictions = self._evictions()
        report.notes += self.player.troubles
        report.judgements = judge(expected, report)

    def _evictions(self) -> Evictions:
        if self.webhook is None:
            known = sum(move.cause == "eviction" for move in self.report.moves)
            return Evictions(asked=known, converted=known)
        told = self.webhook.told
        return Evictions(
            asked=told["marked"] + told["known"] + told["refused"],
            converted=told["marked"],
            repeated=told["known"],
            refused=told["refused"],
        )


def _settings(wanted: Migrating) -> MigrationSettings:
    return MigrationSettings(
        at_once=wanted.at_once,
        per_node=wanted.per_node,
        nic_mbps=wanted.bandwidth_mbps,
        speed=wanted.speed,
        cool_down=CoolDown(base_s=float(wanted.cool_down)),
    )


def _is_fake(node: Object) -> bool:
    return (node["metadata"].get("labels") or {}).get(NODE_LABEL) == NODE_KIND
