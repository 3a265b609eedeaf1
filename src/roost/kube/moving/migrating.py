"""Moving VMs as KubeVirt does: a second pod elsewhere, a live copy, then the first one goes.

                 slot, budget         runs elsewhere        copied          source gone
    (marked) Waiting ----> Scheduling ----> Copying ----> Handover ----> Succeeded
                               |               |
                no node fits   +------> Failed <+   does not converge, a node or pod was lost

The scheduler decides where to; what was wanted is kept beside it. Every step is decided from what
the cluster stores, so a new controller goes on where the last one stopped: pod names follow from
the migration's number, and a copy goes on by the time at which it began. The VM changes hands in
one write of its status; before that the source is the VM, after it the target, never both.
What is left behind by a crash (the target of a failed migration) is taken away when seen.
"""

import contextlib
import logging
from collections.abc import Iterable

from msgspec import Struct

from roost.base.clock import Clock, RealClock
from roost.base.errors import InvalidRequest, NotFound
from roost.kube.client import NODES, PODS, VMS, Kube
from roost.kube.cluster.nodes import is_ready
from roost.kube.mirror import Heard, Mirror
from roost.kube.moments import moment_ms, moment_text
from roost.kube.moving.budgets import covering
from roost.kube.moving.cooldown import CoolDown
from roost.kube.moving.copying import Copying
from roost.kube.moving.migrationnews import News
from roost.kube.moving.migrationrecord import (
    UNMARKED,
    ended_status,
    figures,
    migration_of,
    new_migration,
    runs,
    sentence,
    why_lost,
)
from roost.kube.moving.precopy import Copy, Limits, Stage, bytes_per_s
from roost.kube.moving.slots import Begun, Wish, admit
from roost.kube.names import (
    MEMORY_UTILIZATION_ANNOTATION,
    NAME_LABEL,
)
from roost.kube.objects import Key, Object, key_of, version_of
from roost.kube.vms.launchers import (
    LauncherSettings,
    free_pod,
    is_going,
    is_protected,
    launcher_pod,
    owner_of,
    pod_name,
)
from roost.kube.vms.spec import from_object, number_text
from roost.kube.vms.status import UNDER_WAY, status_of, why_unscheduled
from roost.kube.waited import Waited
from roost.kube.workqueue import WorkQueue

log = logging.getLogger("roost.kube")

#: A budget is not trusted to know of a pod that has just gone until it was written again.
_SETTLES_S = 2.0


class MigrationSettings(Struct, frozen=True, kw_only=True):
    """How VMs are moved."""

    at_once: int = 5  # in the whole cluster, as KubeVirt does
    per_node: int = 2  # that leave one node
    nic_mbps: float = 10_000.0  # of each node; shared by all that leave or arrive
    limits: Limits = Limits()
    cool_down: CoolDown = CoolDown()
    speed: float = 1.0  # seconds that copies count for each second of the clock
    scheduling_s: float = 30.0  # until the target has to run
    unschedulable_s: float = 5.0  # that the scheduler may go on saying that no node fits
    ramp_s: float = 2.0  # at least, between two writes of how far a copy is
    ramp_share: float = 0.1  # at least, too
    history: int = 10  # migrations that a VM remembers


class Migrations:
    """Carries out every wish to leave a node that a VM's status holds."""

    def __init__(
        self,
        kube: Kube,
        vms: Mirror,
        pods: Mirror,
        nodes: Mirror,
        budgets: Mirror,
        settings: MigrationSettings | None = None,
        clock: Clock | None = None,
        *,
        launchers: LauncherSettings | None = None,
    ) -> None:
        self.settings = settings or MigrationSettings()
        self._kube, self._vms, self._pods = kube, vms, pods
        self._nodes, self._budgets = nodes, budgets
        self._clock = clock or RealClock()
        self._launchers = launchers
        self._news = News(kube, self._clock)
        self._queue = WorkQueue(self._look, self._clock, what="migration of")
        rate = bytes_per_s(self.settings.nic_mbps)
        self._copying: Copying[Key] = Copying(lambda _: rate)
        self._answers: dict[Key, Object] = {}  # of our writes, until the mirror knows them
        self._wishes: dict[Key, Wish] = {}
        self._begun: dict[Key, Begun] = {}
        self._reasons: dict[Key, str] = {}  # why a wish waits
        self._waited = Waited(self._clock)  # since a migration began
        self._ramped: dict[Key, tuple[float, float]] = {}  # when, and how far the copy was
        self._unsettled: dict[Key, float] = {}  # budgets, and until when they are not trusted

    @property
    def under_way(self) -> list[Key]:
        """Return the VMs whose migrations have begun and not ended."""
        return sorted(self._begun)

    async def start(self) -> None:
        """Begin; migrations that were under way go on."""
        for item in self._vms:
            # Slots that are taken must be known before the first wish is looked at.
            self._take_slot(key_of(item), item)
        for mirror, heard in self._ears():
            mirror.listen(heard)
        self._queue.start()

    async def stop(self) -> None:
        """End, in the middle of whatever is being done; nothing is lost by that."""
        for mirror, heard in self._ears():
            mirror.forget(heard)
        await self._queue.stop()

    # What is heard

    def _ears(self) -> list[tuple[Mirror, Heard]]:
        return [
            (self._vms, self._vm_heard),
            (self._pods, self._pod_heard),
            (self._nodes, self._node_heard),
            (self._budgets, self._budget_heard),
        ]

    def _vm_heard(self, before: Object | None, after: Object | None) -> None:
        item = after or before
        if item is not None:
            if after is None:
                self._answers.pop(key_of(item), None)
            self._queue.add(key_of(item))

    def _pod_heard(self, before: Object | None, after: Object | None) -> None:
        metadata = (after or before or {})["metadata"]
        name = (metadata.get("labels") or {}).get(NAME_LABEL)
        if name:
            self._queue.add((metadata["namespace"], name))

    def _node_heard(self, before: Object | None, after: Object | None) -> None:
        if after is None:
            self._add_all(self._begun)
        if (before is not None and is_ready(before)) != (after is not None and is_ready(after)):
            name = (after or before or {})["metadata"]["name"]
            marked = (vm for vm in self._vms if status_of(vm).get("evacuationNodeName") == name)
            self._add_all(key_of(vm) for vm in marked)

    def _budget_heard(self, before: Object | None, after: Object | None) -> None:
        self._unsettled.pop(key_of(after or before or {}), None)
        self._offer()

    def _add_all(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self._queue.add(key)

    def _add_copies_but(self, key: Key) -> None:
        self._add_all(each for each in self._begun if each != key and each in self._copying)

    # One VM

    async def _look(self, key: Key) -> float | None:
        """Do what is due for one VM; return after how many seconds to look again."""
        while True:
            vm = self._vm(key)
            if vm is None or is_going(vm):
                # Its pods go with it; the controller that made them sees to that.
                self._forget(key)
                return None
            phase = migration_of(vm).get("phase")
            self._take_slot(key, vm)
            try:
                match phase:
                    case "Scheduling":
                        again = await self._schedule(key, vm)
                    case "Copying":
                        again = await self._copy(key, vm)
                    case "Handover":
                        again = await self._hand_over(key, vm)
                    case _:
                        again = await self._idle(key, vm)
            except InvalidRequest as error:
                if phase not in ("Scheduling", "Copying"):
                    raise
                # Asking again would not help: no right, a full quota, a namespace that goes.
                await self._fail(key, vm, error.message)
                again = 0.0
            if again != 0.0:
                return again

    def _vm(self, key: Key) -> Object | None:
        """Return a VM as last known: the answer to our own last write may be newer."""
        heard = self._vms.get(key[1], key[0])
        answer = self._answers.get(key)
        if heard is None or answer is None:
            return heard
        if version_of(heard) >= version_of(answer):
            del self._answers[key]
            return heard
        return answer

    async def _write(self, key: Key, vm: Object, status: Object) -> None:
        """Change a VM's status if the VM is still as it was; Conflict when it is not.

        So nothing is written over what another wrote meanwhile, nor to another VM of that name.
        """
        version = vm["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version}, "status": status}
        answer = await self._kube.patch(VMS, key[1], change, key[0], part="status")
        known = self._answers.get(key)
        if known is None or version_of(known) < version_of(answer):
            self._answers[key] = answer

    def _forget(self, key: Key) -> None:
        self._wishes.pop(key, None)
        self._reasons.pop(key, None)
        self._end(key)

    def _end(self, key: Key) -> None:
        """Give back what a migration held: its slot and its share of the network."""
        self._ramped.pop(key, None)
        self._waited.forget(key)
        if key in self._copying:
            self._copying.advance(self._now_s)
            self._copying.remove(key)
            self._add_copies_but(key)
        if self._begun.pop(key, None) is not None:
            self._offer()

    # Waiting

    async def _idle(self, key: Key, vm: Object) -> float | None:
        """Look at a VM that is not moving: is it to move, and is anything left of the last time."""
        status, migration = status_of(vm), migration_of(vm)
        name, wanted = status.get("podName") or "", status.get("evacuationNodeName") or ""
        pod = self._pods.get(name, key[0]) if name else None
        await self._tidy(key, vm, pod, name)
        node = (pod or {}).get("spec", {}).get("nodeName") or ""
        if not wanted or (node and node != wanted):
            # Nobody asks for it any more, or the VM is not there any more.
            self._forget(key)
            if migration.get("phase") == "Waiting":
                await self._finish(key, vm, "Failed", "it is not asked for any more")
            elif wanted:
                await self._write(key, vm, UNMARKED)
            return None
        if pod is None or not node or is_going(pod):
            self._forget(key)
            return None  # there will be news
        if why := await self._lost(pod, "source") or ("" if runs(pod) else "its pod does not run"):
            self._forget(key)
            await self._wait(key, vm, pod, why)
            return None  # there will be news of the pod or of its node
        if key not in self._begun:
            asked = status.get("evacuation") or {}
            labels = pod["metadata"].get("labels") or {}
            self._wishes[key] = Wish(key, node, labels, asked.get("requestedAt") or "")
            self._offer()
        if key in self._begun:
            await self._begin(key, vm, pod)
            return 0.0
        await self._wait(key, vm, pod, self._reasons.get(key, ""))
        return _SETTLES_S if self._unsettled else None

    async def _tidy(self, key: Key, vm: Object, own: Object | None, name: str) -> None:
        """Take away what a migration left that has ended."""
        migration = migration_of(vm)
        left = migration.get("targetPod")
        if migration.get("phase") == "Failed":
            pod = self._pods.get(left, key[0]) if left and left != name else None
            if pod is not None and _is_of(pod, vm):
                await free_pod(self._kube, pod)
            if own is not None:
                await self._news.descheduler(own, moving=False)

    def _offer(self) -> None:
        """Let those begin that may, and have those looked at whose reason to wait is another."""
        now = self._clock.monotonic()
        self._unsettled = {key: at for key, at in self._unsettled.items() if at > now}
        unsettled = [item for item in self._budgets if key_of(item) in self._unsettled]
        held: dict[Key, str] = {}
        for key, wish in self._wishes.items():
            if found := covering(unsettled, key[0], wish.labels):
                held[key] = f"disruption budget {found[0]['metadata']['name']} is being computed"
        admitted = admit(
            [wish for key, wish in self._wishes.items() if key not in held],
            list(self._begun.values()),
            list(self._budgets),
            at_once=self.settings.at_once,
            per_node=self.settings.per_node,
        )
        for wish in admitted.begin:
            del self._wishes[wish.key]
            self._begun[wish.key] = Begun(wish.key, wish.node, wish.labels)
            self._reasons.pop(wish.key, None)
            self._queue.add(wish.key)
        for key, reason in (admitted.reasons | held).items():
            if self._reasons.get(key) != reason:
                self._reasons[key] = reason
                self._queue.add(key)

    def _take_slot(self, key: Key, vm: Object) -> None:
        migration = migration_of(vm)
        if key not in self._begun and migration.get("phase") in UNDER_WAY[1:]:
            self._wishes.pop(key, None)
            pod = self._pods.get(migration.get("sourcePod") or "", key[0]) or {"metadata": {}}
            labels = pod["metadata"].get("labels") or {}
            self._begun[key] = Begun(key, migration.get("sourceNode") or "", labels)

    async def _wait(self, key: Key, vm: Object, pod: Object, reason: str) -> None:
        migration = migration_of(vm)
        if (migration.get("phase"), migration.get("reason")) != ("Waiting", reason):
            waits = new_migration(vm, pod) | {"reason": reason}
            await self._write(key, vm, {"migration": waits})

    async def _begin(self, key: Key, vm: Object, pod: Object) -> None:
        begun = new_migration(vm, pod) | {"phase": "Scheduling", "startedAt": self._stamp}
        # First the name, then the pod: a pod that no migration names would be taken for a leftover.
        begun["targetPod"] = pod_name(key[1], vm["metadata"]["uid"], begun["number"])
        await self._write(key, vm, {"migration": begun})
        log.info("VM %s is to leave %s (%s)", "/".join(key), begun["sourceNode"], begun["cause"])

    # Scheduling

    async def _schedule(self, key: Key, vm: Object) -> float | None:
        """See to it that there is a target, and that it runs."""
        migration = migration_of(vm)
        source = await self._pod(migration["sourcePod"], key[0])
        if why := await self._lost_source(vm, source):
            return await self._fail(key, vm, why)
        assert source is not None
        await self._news.descheduler(source, moving=True)
        target = self._pods.get(migration["targetPod"], key[0])
        if target is None:
            target = await self._create_target(key, vm)
        if not _is_of(target, vm):
            return await self._fail(key, vm, f"pod {migration['targetPod']} belongs to others")
        if why := await self._lost(target, "target"):
            return await self._fail(key, vm, why)
        node = target["spec"].get("nodeName") or ""
        if node == migration["sourceNode"]:
            return await self._fail(key, vm, f"the target stands on node {node}, too")
        if node and runs(target):
            began = {"phase": "Copying", "targetNode": node, "copyingAt": self._stamp}
            await self._write(key, vm, {"migration": began})
            return 0.0
        passed_s = self._waited.since(key, migration.get("startedAt"))
        said = "" if node else why_unscheduled(target)
        limit_s = self.settings.unschedulable_s if said else self.settings.scheduling_s
        if passed_s < limit_s:
            return limit_s - passed_s
        if said:
            return await self._fail(key, vm, said)
        late = f"does not run on {node}" if node else "was not given a node"
        return await self._fail(key, vm, f"the target {late} within {limit_s:g} s")

    async def _create_target(self, key: Key, vm: Object) -> Object:
        migration = migration_of(vm)
        pod = launcher_pod(
            from_object(vm),
            vm,
            int(migration["number"]),
            exclude_nodes=[migration["sourceNode"]],
            node=migration.get("forcedNode") or "",
            settings=self._launchers,
        )
        # It is given all its memory at once, and uses it only as it comes over.
        pod["metadata"]["annotations"][MEMORY_UTILIZATION_ANNOTATION] = "0"
        return await self._kube.ensure(PODS, pod, key[0])

    async def _pod(self, name: str, namespace: str) -> Object | None:
        """Return a pod; only the API server says that there is none, the mirror may be behind."""
        if (heard := self._pods.get(name, namespace)) is not None:
            return heard
        with contextlib.suppress(NotFound):
            return await self._kube.get(PODS, name, namespace)
        return None

    async def _lost(self, pod: Object | None, what: str) -> str:
        name = (pod or {}).get("spec", {}).get("nodeName")
        node = self._nodes.get(name) if name else None
        if name and node is None:
            with contextlib.suppress(NotFound):
                node = await self._kube.get(NODES, name)  # a new one may not be heard of yet
        return why_lost(pod, node, what)

    async def _lost_source(self, vm: Object, source: Object | None) -> str:
        if why := await self._lost(source, "source"):
            return why
        if status_of(vm).get("podName") != migration_of(vm)["sourcePod"]:
            return "the source pod is not the VM's any more"
        return ""

    # Copying

    async def _copy(self, key: Key, vm: Object) -> float | None:
        """Let the copy go on, and tell from time to time how far it is."""
        migration = migration_of(vm)
        source = await self._pod(migration["sourcePod"], key[0])
        target = await self._pod(migration["targetPod"], key[0])
        if why := await self._lost_source(vm, source) or await self._lost(target, "target"):
            return await self._fail(key, vm, why)
        assert target is not None
        copy = self._copying.get(key) or self._begin_copy(key, vm)
        self._copying.advance(self._now_s)
        if copy.over:
            # What it had of the network is the others' now: they will be done sooner.
            self._add_copies_but(key)
        match copy.stage:
            case Stage.ABORTED:
                return await self._fail(key, vm, copy.reason)
            case Stage.DONE:
                await self._commit(key, vm, target, copy)
                return 0.0
        ramp_in_s = await self._ramp(key, vm, target, copy)
        event_in_s = (self._copying.next_event() - self._now_s) / self.settings.speed
        return max(min(ramp_in_s, event_in_s), 0.001)

    def _begin_copy(self, key: Key, vm: Object) -> Copy:
        """Begin, or go on with a copy that an earlier controller began, as if it had gone on."""
        migration, asked = migration_of(vm), from_object(vm)
        passed_s = self._passed_s(migration.get("copyingAt")) * self.settings.speed
        copy = Copy(
            asked.memory_bytes * asked.memory_utilization,
            bytes_per_s(asked.dirty_rate_mbps),
            self._now_s - passed_s,
            self.settings.limits,
        )
        self._copying.advance(self._now_s)
        self._copying.begin(key, migration["sourceNode"], migration["targetNode"], copy)
        self._ramped[key] = self._clock.monotonic(), 0.0
        self._add_copies_but(key)
        return copy

    async def _ramp(self, key: Key, vm: Object, target: Object, copy: Copy) -> float:
        """Tell how far a copy is, not too often; return after how long to do so again."""
        at_s, told = self._ramped[key]
        now = self._clock.monotonic()
        wait_s = at_s + self.settings.ramp_s - now
        if wait_s > 0 or copy.progress - told < self.settings.ramp_share:
            return max(wait_s, self.settings.ramp_s / 4)
        self._ramped[key] = now, copy.progress
        used = from_object(vm).memory_utilization * copy.progress
        await self._news.note(target, MEMORY_UTILIZATION_ANNOTATION, number_text(round(used, 4)))
        await self._write(key, vm, {"migration": figures(copy)})
        return self.settings.ramp_s

    async def _commit(self, key: Key, vm: Object, target: Object, copy: Copy) -> None:
        """Make the target the VM, in one write."""
        full = number_text(from_object(vm).memory_utilization)
        await self._news.note(target, MEMORY_UTILIZATION_ANNOTATION, full)
        migration = migration_of(vm)
        status = {
            "podName": migration["targetPod"],
            "nodeName": migration["targetNode"],
            "migration": {"phase": "Handover", "reason": None, **figures(copy)},
        }
        # Not over a VM that was deleted or given another pod meanwhile.
        await self._write(key, vm, status)

    # The end

    async def _hand_over(self, key: Key, vm: Object) -> float | None:
        """Let the source go; with it gone the migration is done."""
        migration = migration_of(vm)
        source = await self._pod(migration["sourcePod"], key[0])
        if source is None or (is_going(source) and not is_protected(source)):
            # Whoever else may hold it back: it is nothing to the VM.
            return await self._finish(key, vm, "Succeeded", "")
        labels = source["metadata"].get("labels") or {}
        until = self._clock.monotonic() + _SETTLES_S
        for budget in covering(self._budgets, key[0], labels):
            self._unsettled.setdefault(key_of(budget), until)
        await free_pod(self._kube, source)
        return None

    async def _fail(self, key: Key, vm: Object, reason: str) -> float | None:
        copy = self._copying.get(key)
        return await self._finish(key, vm, "Failed", reason, figures(copy) if copy else {})

    async def _finish(
        self, key: Key, vm: Object, phase: str, reason: str, copied: Object | None = None
    ) -> float | None:
        """Write down how it ended; what is left to tidy up is done when that is seen."""
        ended = {"phase": phase, "reason": reason or None, "endedAt": self._stamp}
        ended |= copied or {}
        status = ended_status(vm, ended, self.settings.history, self.settings.cool_down)
        kept = status["migrations"][-1]
        if phase == "Succeeded":
            # Told before it is over, or a crash in between would lose it.
            await self._news.event(vm, kept)
        await self._write(key, vm, status)
        log.info("VM %s %s", "/".join(key), sentence(kept))
        self._end(key)
        if phase == "Failed":
            await self._news.event(vm, kept)
        return 0.0

    # Time

    @property
    def _now_s(self) -> float:
        return self._clock.monotonic() * self.settings.speed

    @property
    def _stamp(self) -> str:
        return moment_text(self._clock.wall_ms(), micro=True)

    def _passed_s(self, since: str | None) -> float:
        return max(self._clock.wall_ms() - moment_ms(since), 0) / 1000 if since else 0.0


def _is_of(pod: Object, vm: Object) -> bool:
    owner = owner_of(pod)
    return owner is not None and owner[1] == vm["metadata"]["uid"]


__all__ = ["MigrationSettings", "Migrations"]
