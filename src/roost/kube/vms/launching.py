"""Keeping a pod for every VM: what the cluster has is brought to what its VMs ask for.

    VM asks to run, has no pod   -> one is made, unless its forced node is not there
    pod deleted, failed, or its node gone -> given up; then another, after failures with back-off
    VM asks not to run           -> no pod
    VM deleted                   -> pods let go, then the VM itself
    a pod that the VM's status does not name -> let go: left by a migration or a crash

All of it follows from what the mirrors show at the moment, never from what was done before, so a
new controller goes on where one ended. Before anything is taken away that another writer may just
have put there, the VM is read again from the API server; every write of a status says which
version it was made for.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from roost.base.backoff import BackOff
from roost.base.clock import Clock, RealClock
from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.kube.base.client import NODES, PODS, VMS, Kube
from roost.kube.base.elapsed import Waited
from roost.kube.base.mirror import Mirror
from roost.kube.base.moments import moment_ms, moment_text
from roost.kube.base.names import VM_FINALIZER
from roost.kube.base.objects import Key, Object, key_of, version_of
from roost.kube.base.workqueue import WorkQueue
from roost.kube.vms.launchers import (
    LauncherSettings,
    free_pod,
    is_going,
    launcher_pod,
    own_name,
    own_number,
    owner_of,
    used_annotations,
)
from roost.kube.vms.spec import VM, from_object
from roost.kube.vms.status import (
    changed,
    idle_status,
    migration_target,
    pod_status,
    status_of,
    why_ended,
)

log = logging.getLogger("roost.kube")

_SOON_S = 0.2
#: How long a pod that the API server will not have (quota, rights) waits for its next try.
_REFUSED_S = 30.0
_WAITS = BackOff(1.0, 300.0)
#: A pod that ran for so long has not failed because of how it was started.
_RAN_WELL_MS = 600_000


class LaunchSettings(Struct, kw_only=True, frozen=True):
    """How pods are kept."""

    launcher: LauncherSettings = field(default_factory=LauncherSettings)
    at_once: int = 16
    #: A node that is gone for so long does not come back: its VMs start elsewhere.
    node_gone_s: float = 5.0


class Launching:
    """Looks at each VM whenever something about it changes."""

    def __init__(
        self,
        kube: Kube,
        vms: Mirror,
        pods: Mirror,
        nodes: Mirror,
        settings: LaunchSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._kube, self._vms, self._pods, self._nodes = kube, vms, pods, nodes
        self._settings, self._clock = settings or LaunchSettings(), clock or RealClock()
        self._queue = WorkQueue(
            self._look, self._clock, kube.random, what="VM", at_once=self._settings.at_once
        )  # fmt: skip
        self._pods_of: defaultdict[Key, set[Key]] = defaultdict(set)
        self._wanting: defaultdict[str, set[Key]] = defaultdict(set)  # by forced node, not there
        self._waited = Waited(self._clock)  # since the last failure
        self._gone: dict[str, float] = {}  # nodes, and when they were first missed
        #: What our own last write of a VM gave, until the mirror has it: else we would fall over
        #: our own feet, by writing for a version that we made old ourselves.
        self._written: dict[Key, Object] = {}

    async def start(self) -> None:
        """Begin: look at everything that is there, then at what changes."""
        self._queue.start()
        self._pods.listen(self._heard_pod)
        self._vms.listen(self._heard_vm)
        self._nodes.listen(self._heard_node)

    async def stop(self) -> None:
        """End at once; whoever comes next goes on."""
        for mirror, heard in (
            (self._pods, self._heard_pod),
            (self._vms, self._heard_vm),
            (self._nodes, self._heard_node),
        ):
            mirror.forget(heard)
        await self._queue.stop()

    # News

    def _heard_vm(self, before: Object | None, after: Object | None) -> None:
        key = key_of(after or before or {})
        written = self._written.get(key)
        if written is not None and (after is None or version_of(after) >= version_of(written)):
            del self._written[key]
        if after is None:
            self._waited.forget(key)
        self._queue.add(key)

    def _heard_pod(self, before: Object | None, after: Object | None) -> None:
        pod = after or before or {}
        if (owner := owner_of(pod)) is None:
            return
        key = (pod["metadata"]["namespace"], owner[0])
        if after is None:
            self._pods_of[key].discard(key_of(pod))
            if not self._pods_of[key]:
                del self._pods_of[key]
        else:
            self._pods_of[key].add(key_of(pod))
        self._queue.add(key)

    def _heard_node(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is not None:
            return
        name = key_of(after or before or {})[1]
        self._gone.pop(name, None)
        for key in self._wanting.pop(name, ()):
            self._queue.add(key)
        for pod in self._pods:
            if pod["spec"].get("nodeName") == name and (owner := owner_of(pod)) is not None:
                self._queue.add((pod["metadata"]["namespace"], owner[0]))

    # One VM

    async def _look(self, key: Key) -> float | None:
        """Bring one VM a step on; return when to look again even if nothing changes."""
        item = self._written.get(key) or self._vms.objects.get(key)
        found = [self._pods.objects[each] for each in self._pods_of.get(key, ())]
        uid = item["metadata"]["uid"] if item is not None else ""
        mine = {pod["metadata"]["name"]: pod for pod in found if _owner_uid(pod) == uid}
        if strangers := [pod for pod in found if _owner_uid(pod) != uid]:
            await self._free_strangers(key, strangers)
        if item is None:
            return None
        if is_going(item):
            return await self._end(item, mine)
        try:
            vm = from_object(item)
        except InvalidRequest as error:
            if not mine:
                await self._note(item, idle_status("Failed", error.message, self._now(), item))
            return None
        if any(name not in _named(item) for name in mine):
            # A migration writes down its target before it creates it: what the API server's VM
            # does not name is nobody's.
            item = await self._read_again(item)
        left = [pod for name, pod in mine.items() if name not in _named(item)]
        own = mine.get(own_name(item))
        if not vm.running:
            why = "it is switched off (spec.running)"
            if own is not None:
                item = await self._give_up(item, "Pending", why)
            await self._note(item, idle_status("Pending", why, self._now(), item))
            await self._free(mine.values(), "switched off")
            return None
        await self._free(left, "left over")
        if own is None:
            # Two pods of a VM at once only ever belong to a migration.
            return await self._launch(item, vm) if not left else None
        return await self._keep(item, vm, own)

    async def _keep(self, item: Object, vm: VM, own: Object) -> float | None:
        """Follow a VM's pod, or give it up."""
        lost, wait_s = "", None
        if is_going(own):
            lost = "its pod was deleted"
        elif own["status"].get("phase") in ("Failed", "Succeeded"):
            await self._failed(item, own)
            return None
        else:
            lost, wait_s = await self._node_gone(own)
        if lost:
            await self._give_up(item, "Pending", lost)
            await self._free([own], lost)
            return None
        await self._show_use(vm, own)
        await self._note(item, pod_status(own, status_of(item), self._now()))
        return wait_s

    async def _launch(self, item: Object, vm: VM) -> float | None:
        """Create the VM's pod."""
        status, uid = status_of(item), item["metadata"]["uid"]
        if (wait_s := self._back_off(key_of(item), status)) > 0:
            return wait_s
        if named := status.get("podName"):
            if await self._exists(named, vm.namespace):
                return _SOON_S  # the mirror is behind
            item = await self._give_up(item, "Pending", "its pod is gone")
        # Only if another will do: a VM that fits nowhere else is better there than nowhere. A node
        # that is being emptied is closed to all new pods anyway.
        avoid = [node] if (node := status.get("evacuationNodeName")) else []
        if vm.node and vm.node not in avoid and self._nodes.get(vm.node) is None:
            self._wanting[vm.node].add(key_of(item))
            reason = f"node {vm.node} is not there"
            await self._note(item, idle_status("Pending", reason, self._now(), item))
            return None
        item = await self._protect(item)
        wanted = launcher_pod(
            vm, item, own_number(item), avoid_nodes=avoid, settings=self._settings.launcher
        )  # fmt: skip
        try:
            pod = await self._kube.ensure(PODS, wanted, vm.namespace)
        except InvalidRequest as error:
            await self._note(item, idle_status("Pending", error.message, self._now(), item))
            return _REFUSED_S
        if _owner_uid(pod) != uid:
            raise Conflict(f"pod {vm.namespace}/{own_name(item)} belongs to somebody else")
        seen = pod_status(pod, status_of(item), self._now())
        if avoid:
            seen |= {"evacuationNodeName": None, "evacuation": None}
        await self._note(item, seen)
        return None

    async def _give_up(self, item: Object, phase: str, why: str, **more: Object) -> Object:
        """Write down that a VM's pod is no longer its pod; the next has another name.

        Written before the pod is touched: whoever sees it afterwards takes it for left over.
        """
        lost = idle_status(phase, why, self._now(), item)
        return await self._note(item, lost | {"restarts": 1 - own_number(item)} | more)

    async def _failed(self, item: Object, own: Object) -> None:
        """Count a pod that ended by itself; then take it away."""
        counted: Object = status_of(item).get("failures") or {}
        started = own["status"].get("startTime")
        ran_ms = self._clock.wall_ms() - moment_ms(started) if started else 0
        count = 1 if ran_ms > _RAN_WELL_MS else int(counted.get("count", 0)) + 1
        failures = {"count": count, "lastAt": self._now()}
        await self._give_up(item, "Failed", why_ended(own), failures=failures)
        await self._free([own], "failed")

    def _back_off(self, key: Key, status: Object) -> float:
        failures: Object = status.get("failures") or {}
        if not (count := int(failures.get("count", 0))):
            return 0.0
        return _WAITS.wait_s(count - 1) - self._waited.since(key, failures["lastAt"])

    async def _node_gone(self, own: Object) -> tuple[str, float | None]:
        """Say that a pod's node is gone for good, or how long to wait for it."""
        node = own["spec"].get("nodeName")
        if not node or self._nodes.get(node) is not None:
            return "", None
        now = self._clock.monotonic()
        since = self._gone.setdefault(node, now)
        if (left := since + self._settings.node_gone_s - now) > 0:
            return "", left
        try:
            await self._kube.get(NODES, node)
        except NotFound:
            return f"node {node} is gone", None
        return "", _SOON_S  # the mirror is behind

    async def _end(self, item: Object, mine: Mapping[str, Object]) -> float | None:
        """Let the pods of a deleted VM go; when there is none any more, let the VM go."""
        if mine:
            await self._free(mine.values(), "VM deleted")
            return None  # each one's end will be heard
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        uid, status = item["metadata"]["uid"], status_of(item)
        for each in sorted({own_name(item), migration_target(status) or own_name(item)}):
            # Made, but not heard of yet.
            if (pod := await self._exists(each, namespace)) and _owner_uid(pod) == uid:
                await self._free([pod], "VM deleted")
                return _SOON_S
        left = [each for each in item["metadata"].get("finalizers") or () if each != VM_FINALIZER]
        await self._write_finalizers(item, left)
        log.info("VM %s/%s is gone", namespace, name)
        return None

    # Single steps

    async def _free(self, pods: Iterable[Object], why: str) -> None:
        for pod in pods:
            log.info("pod %s goes: %s", "/".join(key_of(pod)), why)
            await free_pod(self._kube, pod)

    async def _free_strangers(self, key: Key, pods: list[Object]) -> None:
        """Let pods go whose VM is no more, though another may have its name."""
        try:
            uid = (await self._kube.get(VMS, key[1], key[0]))["metadata"]["uid"]
        except NotFound:
            uid = ""
        await self._free([pod for pod in pods if _owner_uid(pod) != uid], "its VM is gone")

    async def _show_use(self, vm: VM, own: Object) -> None:
        noted = own["metadata"].get("annotations") or {}
        change = {
            key: value for key, value in used_annotations(vm).items() if noted.get(key) != value
        }
        if change:
            name = own["metadata"]["name"]
            await self._kube.patch(PODS, name, {"metadata": {"annotations": change}}, vm.namespace)

    async def _protect(self, item: Object) -> Object:
        finalizers = item["metadata"].get("finalizers") or []
        if VM_FINALIZER in finalizers:
            return item
        return await self._write_finalizers(item, [*finalizers, VM_FINALIZER])

    async def _write_finalizers(self, item: Object, finalizers: list[str]) -> Object:
        metadata = item["metadata"]
        if finalizers == (metadata.get("finalizers") or []):
            return item
        change = {
            "metadata": {
                "finalizers": finalizers,
                "resourceVersion": metadata["resourceVersion"],
            }
        }
        return await self._patch(item, change)

    async def _note(self, item: Object, wanted: Object) -> Object:
        """Write what differs of a status; nothing when nothing does."""
        before = status_of(item)
        if not (change := changed(before, wanted)):
            return item
        if "phase" in change or "nodeName" in change:
            where = f" on {wanted['nodeName']}" if wanted.get("nodeName") else ""
            why = f": {wanted['reason']}" if wanted.get("reason") else ""
            log.info("VM %s is %s%s%s", "/".join(key_of(item)), wanted["phase"], where, why)
        version = item["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": change}
        return await self._patch(item, body, part="status")

    async def _patch(self, item: Object, change: Object, part: str = "") -> Object:
        key = key_of(item)
        try:
            answer = await self._kube.patch(VMS, key[1], change, key[0], part=part)
        except Conflict:
            # Somebody else wrote: their version comes by watch, and ours was made for an old one.
            self._written.pop(key, None)
            raise
        self._remember(answer)
        return answer

    async def _read_again(self, item: Object) -> Object:
        namespace, name = key_of(item)
        found = await self._kube.get(VMS, name, namespace)
        if found["metadata"]["uid"] != item["metadata"]["uid"]:
            raise Conflict(f"VM {namespace}/{name} is another by now")
        self._remember(found)
        return found

    def _remember(self, item: Object) -> None:
        key = key_of(item)
        known = self._vms.objects.get(key)
        if known is not None and version_of(known) < version_of(item):
            self._written[key] = item

    async def _exists(self, name: str, namespace: str) -> Object | None:
        try:
            return await self._kube.get(PODS, name, namespace)
        except NotFound:
            return None

    def _now(self) -> str:
        return moment_text(self._clock.wall_ms())


def _named(item: Object) -> tuple[str, str | None]:
    return own_name(item), migration_target(status_of(item))


def _owner_uid(pod: Object) -> str:
    owner = owner_of(pod)
    return owner[1] if owner else ""
