"""VMs of one test on nodes of their own, with a controller that keeps a pod for each."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from roost.base.errors import Unavailable
from roost.kube.base.client import NODES, PODS, VMS, Kube, load_configuration
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings
from roost.kube.vms.assignments import Statistics, until_decided
from roost.kube.vms.compliance import Violation, placed, violations
from roost.kube.vms.crd import install_crd
from roost.kube.vms.launching import LaunchSettings
from roost.kube.vms.spec import VM
from roost.kube.vms.vmlist import cleanup_all, create_vm
from tests.kube.clusters import LIMIT_S, namespace, nodes, pool

GIB = 2**30
#: The only controller of its namespace, and impatient with nodes that are gone.
ALONE = ControllerSettings(launch=LaunchSettings(node_gone_s=0.2), migrate=False, lease=None)


class Space:
    """One test's namespace, seen through mirrors of its own."""

    def __init__(self, kube: Kube, name: str, marked: str, at: list[str]) -> None:
        self.kube, self.name, self.marked, self.nodes = kube, name, marked, at
        self.vms, self.pods = Mirror(kube, VMS, name), Mirror(kube, PODS, name)
        self.pods_ever: set[str] = set()  # uids

    def vm(self, name: str, **asked: Any) -> VM:
        """Return a VM for the nodes of this test."""
        asked = {"cpu_milli": 1000, "memory_bytes": GIB} | asked
        labels = {"test": self.marked}
        return VM(name=name, namespace=self.name, node_labels=labels, **asked)

    async def create(self, name: str, **asked: Any) -> VM:
        """Ask for a VM."""
        made = self.vm(name, **asked)
        await create_vm(self.kube, made)
        return made

    async def until(self, name: str, found: Callable[[Object], object]) -> Object:
        """Wait until a VM's status is as asked for, and return the VM."""

        def look() -> Object | None:
            vm = self.vms.get(name, self.name)
            return vm if vm is not None and found(vm.get("status") or {}) else None

        try:
            return await self.vms.until(look, LIMIT_S)
        except Unavailable as error:
            raise AssertionError(f"{name}: {self.vms.get(name, self.name)}") from error

    async def running(self, name: str, but: str = "") -> Object:
        """Wait until a VM runs, on a node other than one; return its status."""

        def runs(status: Object) -> bool:
            return status.get("phase") == "Running" and status["nodeName"] != but

        found: Object = (await self.until(name, runs))["status"]
        return found

    async def gone(self) -> None:
        """Wait until there is no VM and no pod."""
        await self.vms.until(lambda: not len(self.vms), LIMIT_S, "the end of the VMs")
        await self.pods.until(lambda: not len(self.pods), LIMIT_S, "the end of the pods")

    async def decided(self, names: list[str]) -> Statistics:
        """Wait for the scheduler's word on each VM."""
        return await until_decided(self.vms, self.pods, self.name, names, LIMIT_S)

    async def broken_rules(self) -> list[Violation]:
        """Return the rules that do not hold, as the cluster has it."""
        vms = (await self.kube.list(VMS, self.name)).items
        there = (await self.kube.list(NODES, labels=f"test={self.marked}")).items
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in there}
        return violations(placed(vms), labels)

    def heard(self, before: Object | None, after: Object | None) -> None:
        """Count every pod there ever was."""
        self.pods_ever.add((after or before or {})["metadata"]["uid"])


class Mortal(Kube):
    """A session of a process that ends after so many writes: from then on nothing leaves it."""

    writes_left: int | None = None  # None: it lives
    died: Callable[[], None] = staticmethod(lambda: None)

    async def _send(self, method: str, *args: Any, **more: Any) -> Any:
        if self.writes_left is not None and self.writes_left < 0:
            raise OSError("the process has ended")
        if self.writes_left is None or method == "GET":
            return await super()._send(method, *args, **more)
        if self.writes_left == 0:
            self.writes_left = -1
            self.died()
            raise OSError("the process has ended")
        self.writes_left -= 1
        return await super()._send(method, *args, **more)


async def mortal(cluster: LocalCluster) -> Mortal:
    """Return a session that will end; it never asks twice."""
    return Mortal(await load_configuration(cluster.kubeconfig), patience_s=0.0)


@asynccontextmanager
async def controller(
    kube: Kube, space: str, settings: ControllerSettings = ALONE
) -> AsyncIterator[Controller]:
    """Run a controller of a namespace."""
    made = Controller(kube, space, settings=settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def space(
    cluster: LocalCluster,
    name: str,
    count: int = 3,
    *,
    settings: ControllerSettings | None = ALONE,
    **node: Any,
) -> AsyncIterator[Space]:
    """Make nodes and a namespace for one test; without settings there is no controller."""
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(await cluster.connect())
        await install_crd(kube)
        made = await stack.enter_async_context(namespace(kube, name))
        at = await stack.enter_async_context(nodes(kube, pool(name, count, **node)))
        stack.push_async_callback(cleanup_all, kube, name)
        if settings is not None:
            await stack.enter_async_context(controller(kube, made, settings))
        found = Space(kube, made, name, at)
        for mirror in (found.vms, found.pods):
            await mirror.start()
            stack.push_async_callback(mirror.stop)
        found.pods.listen(found.heard)
        yield found
