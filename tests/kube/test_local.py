"""A cluster comes up, schedules, says how it is, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from roost.base.clock import RealClock
from roost.base.errors import Conflict, Forbidden, NotFound, Unauthorized, Unavailable
from roost.kube.base.client import NODES, PODS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.nodes import NodePool
from roost.kube.cluster.parts import API, SCHEDULER, Setup
from tests.kube.clusters import LIMIT_S, cluster_in, namespace, nodes, pool, run


def pod(name: str, marked: str, cpu: str = "1") -> dict[str, Any]:
    """Return a pod for the nodes of one test."""
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"test": marked},
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def test_pods_are_bound_run_and_go(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with (
            await cluster.connect() as kube,
            namespace(kube, name) as space,
            nodes(kube, pool(name, 3, cpu="2")) as there,
        ):
            pods = await Mirror(kube, PODS, space).start()
            for number in range(7):
                await kube.create(PODS, pod(f"p{number}", name), space)

            def running() -> list[str] | None:
                at = [p["spec"]["nodeName"] for p in pods if p["status"]["phase"] == "Running"]
                return at if len(at) == 6 else None

            at = await pods.until(running, LIMIT_S)
            assert sorted(at) == sorted(there * 2)
            await kube.delete(PODS, "p0", space)
            await pods.until(lambda: pods.get("p0", space) is None or None, LIMIT_S)
            # The seventh takes the room that came free.
            await pods.until(running, LIMIT_S)
            await pods.stop()

    run(body)


def test_a_cluster_has_a_life_of_its_own(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = cluster_in(tmp_path / "c")
        with pytest.raises(NotFound, match="no cluster"):
            _ = cluster.state
        await cluster.up(Setup(pools=(NodePool(count=3, zones=("a", "b"), racks=2),)))
        try:
            with pytest.raises(Conflict, match="up already"):
                await cluster.up()
            status = await cluster.status()
            assert status.ready, status
            assert (status.nodes, status.nodes_ready) == (3, 3)
            await cluster.stop_part(SCHEDULER, crash=True)
            status = await cluster.status()
            assert not status.ready
            assert [part.name for part in status.parts if not part.alive] == [SCHEDULER]
            await cluster.stop_part(API)
            status = await cluster.status()
            assert "does not answer" in status.problem
            await cluster.start_part(API)
            await cluster.start_part(SCHEDULER)
            status = await cluster.status()
            assert status.ready, [part.name for part in status.parts if not part.alive]
            running = list(cluster.state.processes.values())
        finally:
            await cluster.down()
        assert not any(process.is_alive for process in running)
        assert [path.name for path in cluster.folder.iterdir()] == ["lock"]

    run(body)


def test_who_may_not_is_told_what_to_do(cluster: LocalCluster, tmp_path: Path) -> None:
    async def body() -> None:
        nobody = cluster.write_kubeconfig(tmp_path / "nobody", "nobody")
        async with await Kube.open(nobody) as kube:
            with pytest.raises(Forbidden, match=r"nobody.*cannot list") as told:
                await kube.list(NODES)
            assert "role" in (told.value.hint or "")
        late = cluster.write_kubeconfig(
            tmp_path / "late", "admin", ("system:masters",), expired=True
        )
        async with await Kube.open(late) as kube:
            with pytest.raises(Unauthorized) as refused:
                await kube.list(NODES)
            assert "expired" in (refused.value.hint or "")

    run(body)


def test_a_server_that_is_away_is_named(tmp_path: Path) -> None:
    async def body() -> None:
        config = tmp_path / "config"
        config.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}],"
            " contexts: [{name: c, context: {cluster: c, user: u}}],"
            " clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}"
        )
        clock = RealClock()
        began = clock.monotonic()
        async with await Kube.open(config, patience_s=0.3) as kube:
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 does not answer"):
                await kube.list(NODES)
        assert 0.05 < clock.monotonic() - began < 5

    run(body)
