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
from roost.base.errors import Conflict, InvalidRequest, Unavailable
from roost.kube.client import NAMESPACES, NODES, Kube, Object
from roost.kube.compliance import placed, violations
from roost.kube.control import Controller, ControllerSettings
from roost.kube.cooldown import CoolDown
from roost.kube.descheduler import Descheduler, descheduler, promql, with_context
from roost.kube.exporter import Exporter
from roost.kube.exporterapp import serving
from roost.kube.launchers import LauncherSettings
from roost.kube.launching import LaunchSettings
from roost.kube.local import LocalCluster, Setup, add_nodes, is_ready
from roost.kube.many import each_of
from roost.kube.migrating import MigrationSettings
from roost.kube.names import GROUP, NODE_KIND, NODE_LABEL, VMS_NAMESPACE_LABEL
from roost.kube.playing import Play
from roost.kube.prometheus import Prometheus, prometheus
from roost.kube.reports import (
    Evictions,
    Report,
    judge,
    returns_of,
    spread_of,
    time_to_balance,
)
from roost.kube.scenarios import Migrating, Scenario, timeline
from roost.kube.vmlist import cleanup_all
from roost.kube.watching import Say, Watching
from roost.kube.webhook import Webhook

#: On the nodes of a run, with its namespace: its VMs go there and nowhere else.
RUN_LABEL = f"{GROUP}/scenario"
#: What counts as even when a scenario does not say.
EVEN_WITHIN = 0.10
NODES_S = 30.0
SCRAPE_S = 0.5


class Place(Struct):
    """Where a scenario runs."""

    kube: Kube
    kubeconfig: Path | None  # of the descheduler; None: as is usual
    local: LocalCluster | None = None  # a cluster of this machine
    own: bool = False  # it lasts as long as the run
    context: str | None = None  # of the kubeconfig; None: the current one


@asynccontextmanager
async def own_cluster(
    clock: Clock, say: Say, *, folder: Path | None = None, keep: bool = False
) -> AsyncIterator[Place]:
    """Bring up a cluster for one run; it is taken down at the end, unless it is to be kept."""
    with tempfile.TemporaryDirectory(prefix="roost-kube-") as temporary:
        cluster = LocalCluster(folder or Path(temporary) / "cluster", clock=clock, say=say)
        await cluster.up(Setup(pools=()), attached=not keep)
        try:
            async with await cluster.connect() as kube:
                yield Place(kube, cluster.kubeconfig, cluster, own=True)
        finally:
            if not keep:
                await asyncio.shield(cluster.down())


async def run(
    scenario: Scenario,
    where: Place,
    *,
    name: str,
    seed: int | None = None,
    keep: bool = False,
    clock: Clock | None = None,
    say: Say = lambda _: None,
) -> Report:
    """Run a scenario on a cluster and return what came of it."""
    async with running(
        scenario, where, name=name, seed=seed, keep=keep, clock=clock, say=say
    ) as made:
        await made.place()
        await made.play()
        return made.report


@asynccontextmanager
async def running(
    scenario: Scenario,
    where: Place,
    *,
    name: str,
    namespace: str = "",
    seed: int | None = None,
    keep: bool = False,
    clock: Clock | None = None,
    say: Say = lambda _: None,
) -> AsyncIterator["Run"]:
    """Make everything that a scenario needs, and take it away at the end."""
    namespace = namespace or f"scenario-{name[:30].strip('-')}-{secrets.token_hex(3)}"
    seed = scenario.seed if seed is None else seed
    made = Run(scenario, where, name, namespace, seed, clock or RealClock(), say)
    try:
        await made.begin()
        yield made
    finally:
        await asyncio.shield(made.end(keep=keep))


class Run:
    """One run of a scenario."""

    controller: Controller
    watching: Watching
    player: Play
    webhook: Webhook | None = None

    def __init__(
        self,
        scenario: Scenario,
        where: Place,
        name: str,
        namespace: str,
        seed: int,
        clock: Clock,
        say: Say,
    ) -> None:
        self.scenario, self.where, self.seed = scenario, where, seed
        self.kube, self.clock, self._say = where.kube, clock, say
        self.namespace = namespace
        self.report = Report(
            scenario=name, about=scenario.about, seed=seed, own_cluster=where.own,
            server=where.kube.server, namespace=self.namespace,
        )  # fmt: skip
        self._running = AsyncExitStack()
        self._own_nodes: list[str] = []
        self._made_namespace = False

    # Beginning and end

    async def begin(self) -> None:
        """Make nodes and a namespace, and start the controller and the webhook."""
        self.report.version = str((await self.kube.call("GET", "/version")).get("gitVersion", ""))
        there = (await self.kube.list(NODES)).items
        fake = self.where.local is not None or any(_is_fake(node) for node in there)
        labels = await self._make_nodes(there, fake=fake)
        names = self._own_nodes or [node["metadata"]["name"] for node in there]
        if not names:
            raise Unavailable("there is no node", hint="Maybe give the scenario some: nodes.")
        body = {"metadata": {"name": self.namespace, "labels": {VMS_NAMESPACE_LABEL: "true"}}}
        await self.kube.ensure(NAMESPACES, body)
        self._made_namespace = True
        selector = {NODE_LABEL: NODE_KIND} if fake else {}
        self.controller = Controller(
            self.kube,
            self.namespace,
            settings=ControllerSettings(
                launch=LaunchSettings(launcher=LauncherSettings(node_selector=selector)),
                migration=_settings(self.scenario.migration),
                lease=None,
            ),
            clock=self.clock,
        )
        self._running.push_async_callback(self.controller.stop)
        await self.controller.start()
        await self.controller.until_leading()
        if self.where.local is not None:
            self.webhook = Webhook(self.kube, namespace=self.namespace, clock=self.clock)
            self._running.push_async_callback(self.webhook.stop)
            await self.webhook.start()
        else:
            self.report.notes.append(
                "evictions are answered as this cluster does: it cannot ask a webhook of ours here"
            )
        self.watching = Watching(self.controller, self.namespace, names, self.clock, self._say)
        self.player = Play(
            self.kube, self.watching, node_labels=labels, own_nodes=bool(self._own_nodes),
            seed=self.seed, clock=self.clock,
        )  # fmt: skip
        if self._own_nodes:
            await self.controller.nodes.until(self._nodes_ready, NODES_S, "ready nodes")

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

    def _nodes_ready(self) -> bool | None:
        found = (self.controller.nodes.get(name) for name in self._own_nodes)
        return all(node is not None and is_ready(node) for node in found) or None

    async def end(self, *, keep: bool) -> None:
        """Take away what was made."""
        if keep or self.where.own:
            await self._running.aclose()
            if keep:
                self._say(f"kept: namespace {self.namespace} and what is in it")
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
        watching = self.watching
        total = sum(len(pool.names()) for pool in self.scenario.vms)
        self._say(f"creating {total} VMs in namespace {self.namespace}")
        watching.begin()
        await self.player.create(self.scenario.vms)
        await self._settled()
        self.report.placed_s = round(watching.now_s, 3)
        self.report.vms = watching.places()
        waiting = len(self.report.pending)
        self._say(f"{total - waiting} VMs on nodes, {waiting} waiting, {watching.now_s:.1f} s")
        self.report.nodes_before = self.report.nodes = watching.node_states()
        self.report.spread_before = spread_of(self.report.nodes_before)

    async def _settled(self) -> None:
        if trouble := await self.watching.settled():
            self.report.notes.append(trouble)

    async def play(self) -> None:
        """Let the scenario's time pass, and complete the report."""
        moments = timeline(self.scenario, self.seed)
        async with AsyncExitStack() as beside:
            chaser: Descheduler | None = None
            exporter = ""
            if self.scenario.descheduler is not None or self.scenario.avoid_pressure is not None:
                exporter = await beside.enter_async_context(self._exporter())
            if self.scenario.descheduler is not None:
                chaser = await beside.enter_async_context(self._descheduler(exporter))
            self.watching.begin()
            await self.player.play(moments, float(self.scenario.duration))
            self.report.seconds = round(self.watching.now_s, 3)
            if chaser is not None:
                self.report.descheduler_rounds = chaser.told().rounds
        # Without the descheduler, or there might be no end of it.
        await self._settled()
        self.watching.sample()
        self._complete()

    @asynccontextmanager
    async def _exporter(self) -> AsyncIterator[str]:
        """Serve metrics, and keep the scheduler off pressed nodes when that is asked for."""
        avoid = self.scenario.avoid_pressure if self._own_nodes else None
        exporter = Exporter(self.kube, self.namespace, clock=self.clock, avoid_pressure=avoid)
        async with serving(exporter, clock=self.clock, changes=False) as served:
            yield served.url.removeprefix("http://")

    @asynccontextmanager
    async def _descheduler(self, exporter: str) -> AsyncIterator[Descheduler]:
        wanted = self.scenario.descheduler
        kubeconfig = self.where.kubeconfig
        if wanted is None or kubeconfig is None:
            raise InvalidRequest(
                "the descheduler needs a kubeconfig file", hint="Maybe --kubeconfig FILE."
            )
        nodes = f"{RUN_LABEL}={self.namespace}" if self._own_nodes else ""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-desch-")))
            url = ""
            if wanted.source == "prometheus":
                asked = await stack.enter_async_context(
                    prometheus(folder, [exporter], self.clock, every_s=SCRAPE_S)
                )
                await self._until_known(asked, promql(wanted))
                url = asked.url
            self._say(f"the descheduler looks every {wanted.every:g} s ({wanted.source})")
            if self.where.context is not None:
                kubeconfig = with_context(kubeconfig, self.where.context, folder / "kubeconfig")
            yield await stack.enter_async_context(
                descheduler(
                    self.kube, kubeconfig, folder, wanted, self.clock,
                    namespace=self.namespace, nodes=nodes, prometheus_url=url,
                )
            )  # fmt: skip

    async def _until_known(self, asked: Prometheus, query: str) -> None:
        """Wait until Prometheus knows the use of every node."""
        wanted = {use.name for use in self.watching.uses()}
        deadline = self.clock.monotonic() + NODES_S
        while True:
            known = {each["metric"].get("instance") for each in await asked.ask(query)}
            if wanted <= known:
                return
            if self.clock.monotonic() > deadline:
                missing = sorted(wanted - known)
                raise Unavailable(f"Prometheus knows nothing of {', '.join(missing[:5])}")
            await self.clock.sleep(SCRAPE_S / 2)

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
        report.violations = self._violations()
        if self.webhook is not None:
            told = self.webhook.told
            report.evictions = Evictions(
                asked=told["marked"] + told["known"] + told["refused"],
                converted=told["marked"],
                repeated=told["known"],
                refused=told["refused"],
            )
        report.notes += self.player.troubles
        report.judgements = judge(expected, report)

    def _violations(self) -> list[str]:
        nodes = {use.name for use in self.watching.uses()}
        labels = {
            node["metadata"]["name"]: node["metadata"].get("labels") or {}
            for node in self.controller.nodes
            if node["metadata"]["name"] in nodes
        }
        found = violations(placed(self.controller.vms), labels)
        return [f"{each.vm}, {each.rule}: {each.wrong}" for each in found if each.hard]


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
