"""VMs of one test on nodes of their own, with a controller and a webhook that move them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from roost.kube.base.client import PODS, VMS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import NAME_LABEL
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings
from roost.kube.moving.cooldown import CoolDown
from roost.kube.moving.migrating import Migrations, MigrationSettings
from roost.kube.moving.webhook import Webhook
from roost.kube.vms.crd import install_crd
from roost.kube.vms.launching import LaunchSettings
from roost.kube.vms.spec import VM, to_object
from tests.kube.clusters import LIMIT_S, namespace, nodes, pool

GIB = 2**30
#: Fast: a second of the clock is a minute of a copy, and nobody is told to come back later.
QUICK = MigrationSettings(
    speed=60.0, unschedulable_s=0.0, ramp_s=0.1, cool_down=CoolDown(base_s=0.0, retry_s=0.0)
)

#: A scenario of both ways to ask for a move.
BOTH = """
about: One VM is asked to move, another is evicted; the run is over with that.
nodes: [{count: 2, cpu: 8, memory: 32GiB, name: both-node}]
vms:
  - {name: a, cpu: 2, memory: 1GiB, node: both-node-1}
  - {name: b, cpu: 2, memory: 1GiB, node: both-node-2}
steps:
  - {at: 0s, do: migrate, on: a}
  - {at: 0s, do: evict, on: b}
migration: {speed: 20}
expect: {moves_at_least: 2}
"""


class Rig:
    """What a test needs."""

    def __init__(self, kube: Kube, space: str, marked: str, at: list[str]) -> None:
        self.kube, self.space, self.marked, self.nodes = kube, space, marked, at
        self.vms, self.pods = Mirror(kube, VMS, space), Mirror(kube, PODS, space)
        self.webhook: Webhook | None = None
        self.lives: list[tuple[str, int, int]] = []  # VM, its live pods, those that run; each event
        self._news = asyncio.Event()
        for mirror in (self.vms, self.pods):
            mirror.listen(self._heard)

    async def vm(self, name: str, **asked: Any) -> str:
        """Create a VM and return the node on which it runs."""
        asked = {"cpu_milli": 1000, "memory_bytes": 8 * GIB, "memory_utilization": 1.0} | asked
        made = VM(name=name, namespace=self.space, node_labels={"test": self.marked}, **asked)
        await self.kube.create(VMS, to_object(made), self.space)
        return str((await self.until(name, running))["status"]["nodeName"])

    async def until(self, name: str, found: Callable[[Object], object]) -> Object:
        """Wait until a VM is as asked for, and return it."""

        def look() -> Object | None:
            vm = self.vms.get(name, self.space)
            return vm if vm is not None and found(vm) else None

        try:
            return await self.vms.until(look, LIMIT_S)
        except Exception as error:
            raise AssertionError(f"{name}: {self.vms.get(name, self.space)}") from error

    async def moved(self, name: str, number: int = 1) -> Object:
        """Wait until a migration of a VM has ended, and return it."""
        vm = await self.until(name, lambda vm: ended(vm, number))
        migration: Object = vm["status"]["migration"]
        return migration

    async def pod_of(self, name: str) -> str:
        """Return the name of a VM's own pod."""
        return str((await self.kube.get(VMS, name, self.space))["status"]["podName"])

    async def evict(self, name: str) -> None:
        """Ask for the eviction of a VM's own pod."""
        await self.kube.evict(await self.pod_of(name), self.space)

    async def ask(self, name: str, **more: Any) -> None:
        """Mark a VM to leave its node, as a user does."""
        vm = await self.kube.get(VMS, name, self.space)
        evacuation = {"cause": "request", "requestedAt": "2026-01-01T00:00:00Z"} | more
        status = {"evacuationNodeName": vm["status"]["nodeName"], "evacuation": evacuation}
        await self.kube.patch(VMS, name, {"status": status}, self.space, part="status")

    def pods_of(self, name: str) -> list[Object]:
        """Return all pods of a VM."""
        return [pod for pod in self.pods if vm_of(pod) == name]

    async def alone(self, name: str) -> Object:
        """Wait until a VM has one pod, its own, that runs; return it."""

        def look() -> Object | None:
            pods, vm = self.pods_of(name), self.vms.get(name, self.space)
            own = ((vm or {}).get("status") or {}).get("podName")
            if [pod["metadata"]["name"] for pod in pods] != [own]:
                return None
            return pods[0] if pods[0]["status"]["phase"] == "Running" else None

        async with asyncio.timeout(LIMIT_S):
            # Either may tell it: the VM's status or the pod.
            while (found := look()) is None:
                await self._news.wait()
            return found

    def _heard(self, *_: Object | None) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def heard_pod(self, before: Object | None, after: Object | None) -> None:
        """Write down how many pods a VM has."""
        name = vm_of(after or before or {})
        pods = [pod for pod in self.pods_of(name) if "deletionTimestamp" not in pod["metadata"]]
        runs = sum(pod["status"].get("phase") == "Running" for pod in pods)
        self.lives.append((name, len(pods), runs))


def vm_of(pod: Object) -> str:
    """Return the name of the VM whose pod this is, or ''."""
    return str((pod["metadata"].get("labels") or {}).get(NAME_LABEL, ""))


def running(vm: Object) -> bool:
    """Say whether a VM runs."""
    return (vm.get("status") or {}).get("phase") == "Running"


def ended(vm: Object, number: int) -> bool:
    """Say whether a migration of a VM has ended."""
    migration = vm["status"].get("migration") or {}
    if migration.get("number") != number or "evacuationNodeName" in vm["status"]:
        return False
    return migration.get("phase") in ("Succeeded", "Failed")


@asynccontextmanager
async def controller(
    kube: Kube, space: str, settings: MigrationSettings = QUICK, *, migrate: bool = True
) -> AsyncIterator[Controller]:
    """Run a controller of a namespace."""
    launch = LaunchSettings(node_gone_s=0.2)
    chosen = ControllerSettings(launch=launch, migration=settings, migrate=migrate, lease=None)
    made = Controller(kube, space, settings=chosen)
    await made.start()
    try:
        await made.until_leading()
        yield made
    finally:
        await made.stop()


async def migrations(
    kube: Kube, made: Rig, there: Mirror, settings: MigrationSettings = QUICK
) -> tuple[Migrations, list[Mirror]]:
    """Start what moves VMs, with mirrors of its own as after a restart."""
    vms, pods = Mirror(kube, VMS, made.space), Mirror(kube, PODS, made.space)
    for mirror in (vms, pods):
        await mirror.start()
    budgets = Mirror(kube, VMS, made.space)  # there are none
    moving = Migrations(kube, vms, pods, there, budgets, settings)
    await moving.start()
    return moving, [vms, pods]


@asynccontextmanager
async def rig(
    cluster: LocalCluster,
    name: str,
    settings: MigrationSettings | None = QUICK,
    *,
    webhook: bool = False,
    migrate: bool = True,
    count: int = 3,
    **node: Any,
) -> AsyncIterator[Rig]:
    """Make nodes and a namespace for one test; without settings there is no controller."""
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(await cluster.connect())
        await install_crd(kube)
        space = await stack.enter_async_context(namespace(kube, name))
        at = await stack.enter_async_context(nodes(kube, pool(name, count, **node)))
        if settings is not None:
            await stack.enter_async_context(controller(kube, space, settings, migrate=migrate))
        made = Rig(kube, space, name, at)
        for mirror in (made.vms, made.pods):
            await mirror.start()
            stack.push_async_callback(mirror.stop)
        made.pods.listen(made.heard_pod)
        if webhook:
            made.webhook = Webhook(kube, namespace=space)
            await made.webhook.start()
            stack.push_async_callback(made.webhook.stop)
        yield made
