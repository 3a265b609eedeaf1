"""The exporter's view of a cluster: mirrors of nodes, pods and VMs, and moves asked for there.

Everything shown follows from watches; a list is asked for once at the start, after a watch that
was too old, and by `refresh`. The exporter only reads, with two exceptions that it is asked for: a
scenario becomes VirtualMachine objects, and feedback becomes the wish of a VM to leave its node.
What is done about either is the controller's and the scheduler's business.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from roost.base.clock import Clock
from roost.base.errors import NotFound, RoostError, Unavailable
from roost.kube.base.client import NODES, PODS, VMS, Kube, Resource
from roost.kube.base.names import APP, APP_LABEL, NAME_LABEL
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.metering.exposition import family, head, label
from roost.kube.metering.loaded import Loaded
from roost.kube.metering.pending import BUCKETS, REASONS, Pending
from roost.kube.metering.sources import Asked, Health, Landed, Moved, Source
from roost.kube.metering.tainting import Tainting
from roost.kube.metering.watched import Tally, WatchedMirror
from roost.kube.metering.wishes import Wishes
from roost.kube.vms.spec import PHASES
from roost.kube.vms.vmlist import sync

log = logging.getLogger("roost.kube.metering.exporter")

_NO_CONTROLLER = "Maybe nobody makes pods for them: run `roost kube controller`."


class KubeSource(Source):
    """A cluster as its API server tells it."""

    name = "kubernetes"

    def __init__(
        self,
        kube: Kube,
        namespace: str | None,
        clock: Clock,
        *,
        home: str | None = None,
        avoid_pressure: float | None = None,
        watch_s: int = 60,
    ) -> None:
        super().__init__()
        self._kube, self._clock = kube, clock
        self._namespace = namespace
        self.home = home or namespace or "default"  # where scenarios are loaded

        def mirror(resource: Resource, space: str | None) -> WatchedMirror:
            return WatchedMirror(kube, resource, space, clock=clock, watch_s=watch_s)

        self.nodes = mirror(NODES, None)
        self.pods = mirror(PODS, namespace)
        self.vms = mirror(VMS, namespace)
        self._knows_vms = False
        self._lists = asyncio.Lock()
        self._finding: asyncio.Task[None] | None = None
        self.pending = Pending(clock)
        self._info: dict[Key, str] = {}
        self._pod_phases, self._vm_phases, self._migrations = Tally(), Tally(), Tally()
        self.tainting = (
            Tainting(kube, self.nodes, self.usage, avoid_pressure, clock)
            if avoid_pressure is not None
            else None
        )
        self.nodes.listen(_lean)
        self.pods.listen(_lean)
        self.nodes.listen(self.usage.heard_node)
        self.pods.listen(self.usage.heard_pod)
        self.pods.listen(self.pending.heard)
        self.pods.listen(self._heard_pod)
        self.vms.listen(self._heard_vm)

    # Life

    async def start(self) -> None:
        """Read everything once and follow what changes."""
        try:
            await self.nodes.start()
            await self.pods.start()
            await self._find_vms()
        except BaseException:
            await self.stop()
            raise
        if self.tainting is not None:
            self.tainting.start()
        log.info(
            "the exporter shows %s: %d nodes, %d pods",
            self._kube.server, len(self.nodes), len(self.pods),
        )  # fmt: skip

    async def _find_vms(self) -> None:
        """Follow VirtualMachine objects, once the cluster knows of such."""
        async with self._lists:
            if self._knows_vms:
                return
            try:
                await self.vms.start()
                self._knows_vms = True
            except NotFound:
                log.info("the cluster knows no VirtualMachine objects yet; pods alone are shown")

    async def _found_a_pod(self) -> None:
        try:
            await self._find_vms()
        except RoostError as error:
            log.warning("cannot read VirtualMachine objects: %s", error.message)

    async def stop(self) -> None:
        """Take our taints off and end the watches."""
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)
        if self.tainting is not None:
            await self.tainting.stop()
        for mirror in self._mirrors():
            await mirror.stop()

    def _mirrors(self) -> list[WatchedMirror]:
        return [self.nodes, self.pods, self.vms]

    async def refresh(self) -> None:
        """List all objects now; differences are told as the events that were missed."""
        async with self._lists:
            for mirror in self._mirrors():
                if mirror is not self.vms or self._knows_vms:
                    await mirror.refresh()
        await self._find_vms()

    def health(self) -> Health:
        """Say how old the view is; a watch that is broken is not healthy."""
        worst = max(self._mirrors(), key=lambda mirror: mirror.age_s)
        trouble = worst.trouble
        return Health(
            status="ok" if trouble is None else "behind",
            source=self.name,
            server=self._kube.server,
            namespace=self._namespace or "",
            view_age_s=round(worst.age_s, 3),
            trouble=trouble.message if trouble is not None else "",
            nodes=len(self.nodes),
            pods=len(self.pods),
            vms=self.usage.vms,
            lists={mirror.resource.plural: mirror.lists for mirror in self._mirrors()},
            avoiding=self.tainting.avoided if self.tainting is not None else [],
        )

    # What is shown beside the nodes

    def _heard_pod(self, before: Object | None, after: Object | None) -> None:
        item = after if after is not None else before
        if item is None or (item["metadata"].get("labels") or {}).get(APP_LABEL) != APP:
            return
        key = key_of(item)
        if after is not None:
            self._info[key] = _info_line(after)
        else:
            self._info.pop(key, None)
        self._pod_phases.put(key, _pod_phase(after) if after is not None else None)
        if (
            before is None
            and not self._knows_vms
            and (self._finding is None or self._finding.done())
        ):
            # Pods of VMs come after VMs: by now the cluster knows of such.
            self._finding = asyncio.create_task(self._found_a_pod(), name="finding VMs")

    def _heard_vm(self, before: Object | None, after: Object | None) -> None:
        item = after if after is not None else before
        if item is None:
            return
        status = (after or {}).get("status") or {}
        phase = (status.get("phase") or "Pending") if after is not None else None
        self._vm_phases.put(key_of(item), phase)
        self._migrations.put(key_of(item), (status.get("migration") or {}).get("phase"))

    def extra_lines(self) -> list[str]:
        """Return what Prometheus shall read of VMs and of what waits."""
        lines = [
            family(
                "roost_kube_vms", "VMs by phase.",
                [({"phase": phase}, self._vm_phases.counts[phase]) for phase in PHASES],
            ),
            family(
                "roost_kube_vm_pods", "Launcher pods by phase.",
                [({"phase": phase}, self._pod_phases.counts[phase]) for phase in PHASES[1:]],
            ),
            family(
                "roost_kube_migrations", "VMs by the phase of their last migration.",
                [({"phase": phase}, n) for phase, n in sorted(self._migrations.counts.items())],
            ),
            family(
                "roost_kube_pending", "VMs without a node, by what they wait for.",
                [({"reason": reason}, self.pending.reasons[reason]) for reason in REASONS],
            ),
            _latency_lines(self.pending),
            family(
                "roost_exporter_lists_total", "Whole lists asked of the API server.",
                [({"resource": m.resource.plural}, m.lists) for m in self._mirrors()], "counter",
            ),
        ]  # fmt: skip
        if self.tainting is not None:
            avoided = len(self.tainting.avoided)
            lines.append(
                family("roost_exporter_avoided_nodes", "Nodes with our taint.", [({}, avoided)])
            )
        lines.append(head("roost_kube_vm_info", "Launcher pods: which VM runs where."))
        lines.extend(self._info.values())
        return lines

    # Scenarios

    async def load(self, loaded: Loaded, wait_s: float) -> Landed:
        """Make VirtualMachine objects those of a scenario; wait until the scheduler has chosen."""
        await self._need_vms()
        done = await sync(self._kube, self.home, loaded.vms, clock=self._clock)
        names = [vm.name for vm in loaded.vms]

        def settled() -> bool:
            return all(self._is_settled(self.vms.get(name, self.home)) for name in names)

        await self._wait(settled, wait_s)
        landed = Landed(
            scenario=loaded.name,
            source=self.name,
            created=len(done.created),
            updated=len(done.updated),
            deleted=len(done.deleted),
        )
        for name in names:
            status = (self.vms.get(name, self.home) or {}).get("status") or {}
            if status.get("nodeName"):
                landed.placed[name] = status["nodeName"]
            elif status.get("phase") in (None, "", "Pending"):
                landed.missing.append(name)
            else:
                landed.pending[name] = status.get("reason") or "the scheduler has not tried yet"
        landed.hint = _NO_CONTROLLER if landed.missing else ""
        named = [each["metadata"]["name"] for each in loaded.nodes]
        unknown = [name for name in named if self.nodes.get(name) is None]
        if unknown and not landed.hint:
            landed.hint = (
                f"Maybe {len(unknown)} nodes of the scenario are missed ({unknown[0]}, ...): the "
                "exporter makes none; `roost kube scenario run` does."
            )
        return landed

    @staticmethod
    def _is_settled(vm: Object | None) -> bool:
        status = (vm or {}).get("status") or {}
        waits = status.get("phase") in ("Scheduling", "Failed") and status.get("reason")
        return bool(status.get("nodeName") or waits)

    async def _need_vms(self) -> None:
        await self._find_vms()
        if not self._knows_vms:
            raise Unavailable(
                f"{self._kube.server} knows no VirtualMachine objects",
                hint="Maybe run `roost kube controller`, which makes them known.",
            )

    async def _wait(self, done: Callable[[], bool], wait_s: float) -> None:
        try:
            await self.vms.until(lambda: done() or None, wait_s)
        except Unavailable:
            log.info("some VMs are not settled after %g s", wait_s)

    # Moves

    async def move(self, asked: Sequence[Asked], wait_s: float) -> list[Moved]:
        """Note on each VM the wish to leave its node; wait until the scheduler has chosen."""
        await self._need_vms()
        wishes = Wishes(self._kube, self.vms, self.home, self._clock)
        return await wishes.ask(asked, wait_s)


def _lean(before: Object | None, after: Object | None) -> None:
    """Forget who wrote which field: half of what an object takes, and nobody here asks for it."""
    if after is not None:
        after["metadata"].pop("managedFields", None)


def _pod_phase(pod: Object) -> str:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    if phase == "Running":
        return "Running"
    if phase in ("Failed", "Unknown", "Succeeded"):
        return "Failed"
    return "Scheduled" if pod["spec"].get("nodeName") else "Scheduling"


def _info_line(pod: Object) -> str:
    metadata = pod["metadata"]
    vm = (metadata.get("labels") or {}).get(NAME_LABEL) or metadata["name"]
    return (
        f"roost_kube_vm_info{{namespace={label(metadata['namespace'])},vm={label(vm)},"
        f"pod={label(metadata['name'])},node={label(pod['spec'].get('nodeName') or '')},"
        f"phase={label(_pod_phase(pod))}}} 1\n"
    )


def _latency_lines(pending: Pending) -> str:
    name = "roost_kube_scheduling_seconds"
    lines = [head(name, "From a VM's pod to its node, as the exporter saw it.", "histogram")]
    total = 0
    for edge, count in zip((*map(str, BUCKETS), "+Inf"), pending.counts, strict=True):
        total += count
        lines.append(f'{name}_bucket{{le="{edge}"}} {total}\n')
    lines.append(f"{name}_sum {pending.seconds}\n{name}_count {total}\n")
    return "".join(lines)
