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

Beside it: `turns` knows who may begin, `livecopies` how far copies are, `losses` what is missing,
`knownvms` what a VM's status says, and `hearing` which VM to look at. Only this one decides.
"""

import logging

from roost.base.clock import Clock, RealClock
from roost.base.errors import InvalidRequest
from roost.kube.base.client import PODS, Kube
from roost.kube.base.elapsed import Waited
from roost.kube.base.mirror import Mirror
from roost.kube.base.moments import moment_text
from roost.kube.base.names import MEMORY_UTILIZATION_ANNOTATION
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.base.workqueue import WorkQueue
from roost.kube.moving.knownvms import KnownVMs
from roost.kube.moving.livecopies import LiveCopies
from roost.kube.moving.losses import Losses
from roost.kube.moving.migrationnews import News
from roost.kube.moving.migrationrecord import (
    UNMARKED,
    ended_status,
    figures,
    migration_of,
    new_migration,
    runs,
    sentence,
)
from roost.kube.moving.migrationsettings import MigrationSettings
from roost.kube.moving.precopy import Copy, Stage
from roost.kube.moving.routing import Hearing
from roost.kube.moving.slots import Begun, Wish
from roost.kube.moving.turns import Turns
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

log = logging.getLogger("roost.kube")


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
        self._launchers, self._clock = launchers, clock or RealClock()
        self._queue = WorkQueue(self._look, self._clock, kube.random, what="migration of")
        self._known = KnownVMs(kube, vms)
        self._losses = Losses(kube, pods, nodes)
        self._news = News(kube, self._clock)
        self._turns = Turns(
            budgets, self._clock, self._queue.add,
            at_once=self.settings.at_once, per_node=self.settings.per_node,
        )  # fmt: skip
        self._copies = LiveCopies(self.settings, self._clock, self._queue.add)
        self._hearing = Hearing(
            vms, pods, nodes, budgets, known=self._known, turns=self._turns, look=self._queue.add
        )
        self._waited = Waited(self._clock)  # since a migration began

    @property
    def under_way(self) -> list[Key]:
        """Return the VMs whose migrations have begun and not ended."""
        return self._turns.begun

    async def start(self) -> None:
        """Begin; migrations that were under way go on."""
        for item in self._vms:
            # Slots that are taken must be known before the first wish is looked at.
            self._hold_slot(key_of(item), item)
        self._hearing.start()
        self._queue.start()

    async def stop(self) -> None:
        """End, in the middle of whatever is being done; nothing is lost by that."""
        self._hearing.stop()
        await self._queue.stop()

    # One VM

    async def _look(self, key: Key) -> float | None:
        """Do what is due for one VM; return after how many seconds to look again."""
        while True:
            vm = self._known.get(key)
            if vm is None or is_going(vm):
                # Its pods go with it; the controller that made them sees to that.
                self._forget(key)
                return None
            phase = migration_of(vm).get("phase")
            self._hold_slot(key, vm)
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

    def _hold_slot(self, key: Key, vm: Object) -> None:
        """Keep the slot of a migration that is under way, whoever began it."""
        migration = migration_of(vm)
        if not self._turns.has_begun(key) and migration.get("phase") in UNDER_WAY[1:]:
            pod = self._pods.get(migration.get("sourcePod") or "", key[0])
            self._turns.hold(Begun(key, migration.get("sourceNode") or "", _labels(pod)))

    def _forget(self, key: Key) -> None:
        """Give back what a VM has here: its share of the network, and its slot or its wish."""
        self._waited.forget(key)
        self._copies.end(key)
        self._turns.end(key)

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
                await self._known.write(vm, UNMARKED)
            return None
        if pod is None or not node or is_going(pod):
            self._forget(key)
            return None  # there will be news
        why = await self._losses.why(pod, "source")
        if why or not runs(pod):
            self._forget(key)
            await self._wait(vm, pod, why or "its pod does not run")
            return None  # there will be news of the pod or of its node
        asked = (status.get("evacuation") or {}).get("requestedAt") or ""
        if self._turns.wish(Wish(key, node, _labels(pod), asked)):
            await self._begin(key, vm, pod)
            return 0.0
        await self._wait(vm, pod, self._turns.why_waiting(key))
        return self._turns.settle_in_s()

    async def _tidy(self, key: Key, vm: Object, own: Object | None, name: str) -> None:
        """Take away what a migration left that has ended."""
        migration = migration_of(vm)
        left = migration.get("targetPod")
        if migration.get("phase") == "Failed":
            pod = self._pods.get(left, key[0]) if left and left != name else None
            if pod is not None and _is_of(pod, vm):
                if not is_going(pod):
                    self._unsettle(pod)
                await free_pod(self._kube, pod)
            if own is not None:
                await self._news.descheduler(own, moving=False)

    async def _wait(self, vm: Object, pod: Object, reason: str) -> None:
        migration = migration_of(vm)
        if (migration.get("phase"), migration.get("reason")) != ("Waiting", reason):
            waits = new_migration(vm, pod) | {"reason": reason}
            await self._known.write(vm, {"migration": waits})

    async def _begin(self, key: Key, vm: Object, pod: Object) -> None:
        begun = new_migration(vm, pod) | {"phase": "Scheduling", "startedAt": self._stamp}
        # First the name, then the pod: a pod that no migration names would be taken for a leftover.
        begun["targetPod"] = pod_name(key[1], vm["metadata"]["uid"], begun["number"])
        await self._known.write(vm, {"migration": begun})
        log.info("VM %s is to leave %s (%s)", "/".join(key), begun["sourceNode"], begun["cause"])

    # Scheduling

    async def _schedule(self, key: Key, vm: Object) -> float | None:
        """See to it that there is a target, and that it runs."""
        migration = migration_of(vm)
        source = await self._losses.pod(migration["sourcePod"], key[0])
        if why := await self._losses.why_source(vm, source):
            return await self._fail(key, vm, why)
        assert source is not None
        await self._news.descheduler(source, moving=True)
        target = self._pods.get(migration["targetPod"], key[0])
        if target is None:
            target = await self._create_target(key, vm)
        if not _is_of(target, vm):
            return await self._fail(key, vm, f"pod {migration['targetPod']} belongs to others")
        if why := await self._losses.why(target, "target"):
            return await self._fail(key, vm, why)
        node = target["spec"].get("nodeName") or ""
        if node == migration["sourceNode"]:
            return await self._fail(key, vm, f"the target stands on node {node}, too")
        if node and runs(target):
            began = {"phase": "Copying", "targetNode": node, "copyingAt": self._stamp}
            await self._known.write(vm, {"migration": began})
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

    # Copying

    async def _copy(self, key: Key, vm: Object) -> float | None:
        """Let the copy go on, and tell from time to time how far it is."""
        migration = migration_of(vm)
        source = await self._losses.pod(migration["sourcePod"], key[0])
        target = await self._losses.pod(migration["targetPod"], key[0])
        why = await self._losses.why_source(vm, source) or await self._losses.why(target, "target")
        if why:
            return await self._fail(key, vm, why)
        assert target is not None
        copy = self._copies.follow(key, vm)
        match copy.stage:
            case Stage.ABORTED:
                return await self._fail(key, vm, copy.reason)
            case Stage.DONE:
                await self._commit(vm, target, copy)
                return 0.0
        if self._copies.is_due(key):
            await self._tell(key, vm, target, copy)
            again_s = self.settings.ramp_s
        else:
            again_s = self._copies.due_in_s(key)
        return max(min(again_s, self._copies.event_in_s()), 0.001)

    async def _tell(self, key: Key, vm: Object, target: Object, copy: Copy) -> None:
        """Tell how far a copy is: on its target, which uses so much memory, and in the status."""
        self._copies.told(key)
        used = from_object(vm).memory_utilization * copy.progress
        await self._news.note(target, MEMORY_UTILIZATION_ANNOTATION, number_text(round(used, 4)))
        await self._known.write(vm, {"migration": figures(copy)})

    async def _commit(self, vm: Object, target: Object, copy: Copy) -> None:
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
        await self._known.write(vm, status)

    # The end

    async def _hand_over(self, key: Key, vm: Object) -> float | None:
        """Let the source go; with it gone the migration is done."""
        migration = migration_of(vm)
        source = await self._losses.pod(migration["sourcePod"], key[0])
        if source is None or (is_going(source) and not is_protected(source)):
            # Whoever else may hold it back: it is nothing to the VM.
            return await self._finish(key, vm, "Succeeded", "")
        self._unsettle(source)
        await free_pod(self._kube, source)
        return None

    async def _fail(self, key: Key, vm: Object, reason: str) -> float | None:
        # Until its target is gone, and Kubernetes has seen that, budgets allow one too many.
        if target := self._pods.get(migration_of(vm).get("targetPod") or "", key[0]):
            self._unsettle(target)
        copy = self._copies.get(key)
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
        await self._known.write(vm, status)
        log.info("VM %s %s", "/".join(key), sentence(kept))
        self._forget(key)
        if phase == "Failed":
            await self._news.event(vm, kept)
        return 0.0

    def _unsettle(self, pod: Object) -> None:
        """Have no budget trusted that counts a pod which goes now."""
        namespace, name = key_of(pod)
        self._turns.unsettle(namespace, name, _labels(pod))

    @property
    def _stamp(self) -> str:
        return moment_text(self._clock.wall_ms(), micro=True)


def _is_of(pod: Object, vm: Object) -> bool:
    owner = owner_of(pod)
    return owner is not None and owner[1] == vm["metadata"]["uid"]


def _labels(pod: Object | None) -> dict[str, str]:
    return (pod or {"metadata": {}})["metadata"].get("labels") or {}


__all__ = ["MigrationSettings", "Migrations"]
