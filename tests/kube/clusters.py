"""Real clusters for tests: etcd, API server, scheduler, controllers and KWOK on loopback.

One cluster serves all tests of a process; each test has a namespace of its own, and nodes of its
own when it asks for them. What breaks a cluster brings up its own.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from roost.kube.base.client import NAMESPACES, NODES, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.cluster.local import LocalCluster, add_nodes
from roost.kube.cluster.nodes import NodePool
from roost.kube.cluster.tools import missing_tools

INSTALL = "build the Kubernetes programs: make kube-tools (needs Go)"
#: Long enough for a machine that is busy with other tests; reached only by a failure.
LIMIT_S = 60.0
T = TypeVar("T")


def need_tools() -> None:
    """Skip the test when the programs are missing; in CI, where nothing may be, fail."""
    if missing := missing_tools():
        _without(f"not built: {', '.join(missing)}; {INSTALL}")


def _without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def run(work: Callable[[], Awaitable[T]], limit_s: float = 180.0) -> T:
    """Run the body of a test; one that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(limit_s):
            return await work()

    return asyncio.run(bounded())


@asynccontextmanager
async def namespace(kube: Kube, name: str) -> AsyncIterator[str]:
    """Make a namespace, and remove it at the end without waiting for it."""
    await kube.ensure(NAMESPACES, {"metadata": {"name": name}})
    try:
        yield name
    finally:
        await kube.delete(NAMESPACES, name)


@asynccontextmanager
async def nodes(kube: Kube, *pools: NodePool) -> AsyncIterator[list[str]]:
    """Make nodes for one test, and remove them at the end."""
    names = [node["metadata"]["name"] for pool in pools for node in pool.nodes()]
    await add_nodes(kube, pools)
    try:
        yield names
    finally:
        await each_of(names, lambda name: kube.delete(NODES, name))


def pool(marked: str, count: int = 3, **more: Any) -> NodePool:
    """Return a pool whose nodes carry a label of their own, `test=MARKED`, for node selectors."""
    labels = {"test": marked} | more.pop("labels", {})
    return NodePool(count=count, name=f"{marked}-node", labels=labels, **more)


def cluster_in(folder: Path) -> LocalCluster:
    """Return a cluster that a test brings up itself."""
    need_tools()
    return LocalCluster(folder)
