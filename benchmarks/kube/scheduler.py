"""kube-scheduler: pods are created while it is stopped; then it starts and binds them.

The window goes from the first pod that is seen bound to the last, by a watch and by our own clock;
CPU time of each part is read at both ends.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.api.verifying import Wrong
from benchmarks.kube.workload import Case, check, node, pod
from roost.kube.base.client import NAMESPACES, NODES, PODS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.parts import API, ETCD, SCHEDULER, Setup
from roost.kube.cluster.processes import cpu_seconds

NAMESPACE = "bench"
PARTS = (SCHEDULER, API, ETCD)
_LIMIT_S = 300.0


@dataclass
class Run:
    """One run: how fast, and what a pod cost each part in the window."""

    pods_per_s: float
    cpu_ms: dict[str, float]
    pods: list[Object] = field(repr=False)  # as they waited
    load: float = field(default_factory=lambda: os.getloadavg()[0])  # other work slows it down

    def cpu(self) -> str:
        """Write the CPU of the parts down."""
        total = sum(self.cpu_ms.values())
        each = " / ".join(f"{self.cpu_ms[part]:.1f}" for part in PARTS)
        return f"CPU ms per pod {total:.1f}: scheduler / API server / etcd {each}"


class Window:
    """Notes when pods are bound."""

    def __init__(self, cluster: LocalCluster, count: int) -> None:
        self._cluster, self._count = cluster, count
        self.placed: dict[str, str] = {}
        self.first: tuple[float, dict[str, float]] = (0.0, {})
        self.last: tuple[float, dict[str, float]] = (0.0, {})

    def heard(self, before: Object | None, after: Object | None) -> None:
        """Take note of a change of a pod."""
        if after is None or not (where := after["spec"].get("nodeName")):
            return
        name = after["metadata"]["name"]
        if name in self.placed:
            return
        self.placed[name] = where
        if len(self.placed) == 1:
            self.first = self._clocks()
        if len(self.placed) == self._count:
            self.last = self._clocks()

    def _clocks(self) -> tuple[float, dict[str, float]]:
        now = time.perf_counter()
        running = self._cluster.state.processes
        return now, {part: cpu_seconds(running[part].pid) for part in PARTS}

    def run(self, pods: list[Object]) -> Run:
        """Return what was measured; the first pod only opens the window."""
        (began, cpu_before), (ended, cpu_after) = self.first, self.last
        bound = self._count - 1
        spent = {part: 1e3 * (cpu_after[part] - cpu_before[part]) / bound for part in PARTS}
        return Run(bound / (ended - began), spent, pods)


@contextmanager
def cluster_of(folder: Path, nodes: int, *, fsync: bool) -> Iterator[LocalCluster]:
    """Run etcd, API server and scheduler, with so many nodes, for the length of a block."""
    cluster = LocalCluster(folder)

    async def up() -> None:
        await cluster.up(Setup(pools=(), parts=(ETCD, API, SCHEDULER), fsync=fsync), attached=True)
        await cluster.stop_part(SCHEDULER)
        async with await cluster.connect() as kube:
            await each_of(map(node, range(nodes)), lambda each: kube.ensure(NODES, each))

    try:
        asyncio.run(up())
        yield cluster
    finally:
        asyncio.run(cluster.down())


def nodes_of(cluster: LocalCluster) -> list[Object]:
    """Return the nodes as the API server tells them."""

    async def ask() -> list[Object]:
        async with await cluster.connect() as kube:
            return (await kube.list(NODES)).items

    return asyncio.run(ask())


def measure(cluster: LocalCluster, case: Case, count: int, *, all_nodes: bool) -> Run:
    """Let the scheduler bind so many pods, check where they went, and remove them."""

    async def work() -> Run:
        async with await cluster.connect() as kube:
            return await _measure(kube, cluster, case, count, all_nodes)

    return asyncio.run(work())


async def _measure(
    kube: Kube, cluster: LocalCluster, case: Case, count: int, all_nodes: bool
) -> Run:
    await cluster.stop_part(SCHEDULER)
    await kube.ensure(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await each_of(
        (pod(case, number) for number in range(count)),
        lambda each: kube.ensure(PODS, each, NAMESPACE),
    )
    waiting = await Mirror(kube, PODS, NAMESPACE).start()
    try:
        pods = list(waiting)
        window = Window(cluster, count)
        waiting.listen(window.heard)
        changes: Object = {"percentageOfNodesToScore": 100} if all_nodes else {}
        await cluster.reconfigure_scheduler(changes, attached=True)
        await waiting.until(lambda: len(window.placed) == count, _LIMIT_S, f"{count} bound pods")
        await cluster.stop_part(SCHEDULER)
        listed = (await kube.list(PODS, NAMESPACE)).items
        placed = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in listed}
        if placed != window.placed:
            raise Wrong(f"kube-scheduler, {case}: the watch and the list differ")
        check(f"kube-scheduler, {case}", case, (await kube.list(NODES)).items, placed)
        at_once = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        await kube.call("DELETE", PODS.path(NAMESPACE), body=at_once)
        await waiting.until(lambda: not len(waiting), _LIMIT_S, "an empty namespace")
        return window.run(pods)
    finally:
        await waiting.stop()
