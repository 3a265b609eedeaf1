"""What a migration has lost on the way: its source, its target, or the node of one of them.

A mirror may be behind, so that something is missing only when the API server says so, too.
"""

import contextlib

from roost.base.errors import NotFound
from roost.kube.base.client import NODES, PODS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Object
from roost.kube.moving.migrationrecord import migration_of, why_lost
from roost.kube.vms.status import status_of


class Losses:
    """Looks after the pods of migrations and their nodes."""

    def __init__(self, kube: Kube, pods: Mirror, nodes: Mirror) -> None:
        self._kube, self._pods, self._nodes = kube, pods, nodes

    async def pod(self, name: str, namespace: str) -> Object | None:
        """Return a pod; None when there is none."""
        if (heard := self._pods.get(name, namespace)) is not None:
            return heard
        with contextlib.suppress(NotFound):
            return await self._kube.get(PODS, name, namespace)
        return None

    async def why(self, pod: Object | None, what: str) -> str:
        """Return why a pod is of no use any more, calling it so; '' when it is."""
        name = (pod or {}).get("spec", {}).get("nodeName")
        node = self._nodes.get(name) if name else None
        if name and node is None:
            with contextlib.suppress(NotFound):
                node = await self._kube.get(NODES, name)
        return why_lost(pod, node, what)

    async def why_source(self, vm: Object, source: Object | None) -> str:
        """Return why there is nothing left to move a VM from; '' when there is."""
        if why := await self.why(source, "source"):
            return why
        if status_of(vm).get("podName") != migration_of(vm)["sourcePod"]:
            return "the source pod is not the VM's any more"
        return ""
