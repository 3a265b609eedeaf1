"""The exporter on a real cluster: it follows by watch, survives what clusters do, and steers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from roost.base.units import GIB
from roost.kube.base.client import NODES, PODS, VMS, Kube
from roost.kube.base.names import (
    CPU_UTILIZATION_ANNOTATION,
    MEMORY_UTILIZATION_ANNOTATION,
)
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.nodes import NodePool
from roost.kube.cluster.parts import API, Setup
from roost.kube.metering.app import serving
from roost.kube.metering.exporter import Exporter
from roost.kube.metering.kubesource import KubeSource
from roost.kube.metering.tainting import is_tainted, retainted
from roost.kube.metering.watched import WatchedMirror
from roost.kube.vms.crd import install_crd
from roost.kube.vms.launchers import launcher_pod
from roost.kube.vms.spec import VM, to_object
from tests.kube.clusters import LIMIT_S, cluster_in, namespace, nodes, pool, run


def pod_of(name: str, marked: str, **more: Any) -> dict[str, Any]:
    """Return a launcher pod for the nodes of one test, without an object that owns it."""
    fields: dict[str, Any] = {
        "cpu_milli": 16_000, "memory_bytes": 32 * GIB, "cpu_utilization": 0.5,
        "memory_utilization": 0.5, "node_labels": {"test": marked} if marked else {},
    }  # fmt: skip
    vm = VM(name=name, **(fields | more))
    made = launcher_pod(vm, {"metadata": {"uid": name}}, 0)
    del made["metadata"]["ownerReferences"], made["metadata"]["finalizers"]
    made["metadata"]["name"] = name
    made["metadata"].pop("namespace")
    return made


class Asked:
    """An exporter that is served, and what a test asks it."""

    def __init__(self, exporter: Exporter, client: httpx.AsyncClient) -> None:
        self.exporter, self.client = exporter, client
        assert isinstance(exporter.source, KubeSource)
        self.source = exporter.source

    async def metrics(self) -> dict[str, dict[str, float]]:
        """Return the page: name to values, by the labels' values in the order of their names."""
        answer = await self.client.get("/metrics")
        assert answer.status_code == 200
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                labels = "/".join(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    async def json(self, path: str) -> dict[str, Any]:
        """Return what a path tells."""
        answer = await self.client.get(path)
        return {"http": answer.status_code} | answer.json()


@asynccontextmanager
async def served(kube: Kube, space: str | None, **more: Any) -> AsyncIterator[Asked]:
    """Run an exporter over a real socket."""
    exporter = Exporter(kube, space, watch_s=more.pop("watch_s", 60), **more)
    async with (
        serving(exporter) as running,
        httpx.AsyncClient(base_url=running.url, timeout=60) as client,
    ):
        yield Asked(exporter, client)


def test_metrics_follow_by_watch_alone(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with (
            await cluster.connect() as kube,
            namespace(kube, name) as space,
            nodes(kube, pool(name, 2)) as there,
            served(kube, space) as asked,
        ):
            pods, usage = asked.source.pods, asked.exporter.usage
            before = await asked.metrics()
            assert all(before["node_cpu_usage_ratio"][node] == 0.0 for node in there)
            await kube.create(PODS, pod_of("one", name, node_labels={"test": name}), space)
            await pods.until(lambda: usage.vms == 1 or None, LIMIT_S)
            at = pods.objects[space, "one"]["spec"]["nodeName"]
            found = await asked.metrics()
            assert found["node_cpu_usage_ratio"][at] == 0.25
            assert found["node_memory_usage_ratio"][at] == 0.125
            assert found["node_vm_count"][at] == 1
            assert found["node_cpu_pressure_psi"][at] == pytest.approx(0.0175)
            await pods.until(lambda: phase_of(asked, "one", space) == "Running" or None, LIMIT_S)
            found = await asked.metrics()
            [info] = [key for key in found["roost_kube_vm_info"] if key.startswith(f"{space}/")]
            assert info == f"{space}/{at}/Running/one/one"
            assert found["roost_kube_vm_pods"]["Running"] == 1
            assert found["roost_kube_scheduling_seconds_count"][""] == 1
            assert 0 < found["roost_kube_scheduling_seconds_sum"][""] < LIMIT_S
            # It becomes busier: only its annotations change.
            notes = {CPU_UTILIZATION_ANNOTATION: "1", MEMORY_UTILIZATION_ANNOTATION: "1"}
            await kube.patch(PODS, "one", {"metadata": {"annotations": notes}}, space)
            node = usage.node(at)
            assert node is not None
            await pods.until(lambda: node.cpu_ratio == 0.5 or None, LIMIT_S)
            told = await asked.json(f"/nodes/{at}")
            assert (told["cpu_usage_ratio"], told["memory_usage_ratio"]) == (0.5, 0.25)
            assert [(each["vm"], each["cpu_used_milli"]) for each in told["vms"]] == [
                ("one", 16_000.0)
            ]
            # One that nobody has room for waits, with the class of the reason.
            await kube.create(PODS, pod_of("big", name, memory_bytes=999 * GIB), space)
            reasons = asked.source.pending.reasons
            await pods.until(lambda: reasons["memory"] == 1 or None, LIMIT_S)
            assert (await asked.metrics())["roost_kube_pending"]["memory"] == 1
            for each in ("one", "big"):
                await kube.delete(PODS, each, space, grace_s=0)
            await pods.until(lambda: len(pods) == 0 or None, LIMIT_S)
            found = await asked.metrics()
            assert found["node_vm_count"][at] == 0
            assert found["roost_kube_pending"]["memory"] == 0
            health = await asked.json("/health")
            assert (health["http"], health["source"], health["view_age_s"]) == (
                200, "kubernetes", 0.0
            )  # fmt: skip
            assert (health["lists"]["pods"], health["lists"]["nodes"]) == (1, 1)
            # Counters of a scrape: every mode goes on, and all make cores x time.
            later = await asked.metrics()
            for mode in ("idle", "user", "system"):
                key = f"{at}/{mode}"
                old, new = (each["node_cpu_seconds_total"][key] for each in (found, later))
                assert new >= old

    run(body)


def phase_of(asked: Asked, name: str, space: str) -> str | None:
    item = asked.source.pods.get(name, space)
    return item["status"].get("phase") if item else None


def test_refresh_lists_once_more_and_a_deleted_node_is_no_longer_shown(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with (
            await cluster.connect() as kube,
            namespace(kube, name) as space,
            nodes(kube, pool(name, 2)) as there,
            served(kube, space) as asked,
        ):
            # Two at once are one after the other: the watch goes on once.
            answers = await asyncio.gather(*(asked.client.post("/refresh") for _ in range(2)))
            assert [answer.status_code for answer in answers] == [200, 200]
            assert asked.source.pods.lists == 3
            await kube.create(PODS, pod_of("one", name), space)
            source = asked.source
            await source.pods.until(lambda: source.usage.vms == 1 or None, LIMIT_S)
            await kube.delete(NODES, there[1])
            await source.nodes.until(
                lambda: source.nodes.get(there[1]) is None or None, LIMIT_S
            )  # fmt: skip
            found = await asked.metrics()
            for metric in ("node_cpu_usage_ratio", "node_cpu_pressure_psi", "node_vm_count"):
                assert there[0] in found[metric]
                assert there[1] not in found[metric]
            assert f"{there[1]}/idle" not in found["node_cpu_seconds_total"]
            assert (await asked.json(f"/nodes/{there[1]}"))["http"] == 404
            assert source.pods.lists == 3
            await kube.delete(PODS, "one", space, grace_s=0)

    run(body)


async def well(mirror: WatchedMirror) -> None:
    await mirror.until(lambda: mirror.trouble is None or None, LIMIT_S)


def test_a_restarted_api_server_is_told_and_followed_again(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = cluster_in(tmp_path / "c")
        await cluster.up(Setup(pools=(NodePool(count=2),)), attached=True)
        try:
            async with (
                await cluster.connect(patience_s=0.5) as kube,
                served(kube, "default", watch_s=10) as asked,
            ):
                source = asked.source
                await kube.create(PODS, pod_of("one", ""), "default")
                await source.pods.until(lambda: source.usage.vms == 1 or None, LIMIT_S)
                await cluster.stop_part(API, crash=True)
                await source.pods.until(lambda: source.pods.trouble, LIMIT_S)
                health = await asked.json("/health")
                assert (health["http"], health["status"]) == (503, "behind")
                assert "does not answer" in health["trouble"]
                # What is known is still shown, with its age.
                found = await asked.metrics()
                assert sum(found["node_vm_count"].values()) == 1
                assert found["roost_exporter_view_age_seconds"][""] >= 0.0
                refused = await asked.client.post("/refresh")
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "unavailable"
                await cluster.start_part(API, attached=True)
                await kube.create(PODS, pod_of("two", ""), "default")
                await source.pods.until(lambda: source.usage.vms == 2 or None, LIMIT_S)
                for mirror in (source.nodes, source.pods):
                    await well(mirror)
                health = await asked.json("/health")
                assert (health["http"], health["view_age_s"], health["trouble"]) == (200, 0.0, "")
                assert sum((await asked.metrics())["node_vm_count"].values()) == 2
        finally:
            await cluster.down()

    run(body)


def test_a_pressured_node_is_avoided_until_the_exporter_ends(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with (
            await cluster.connect() as kube,
            namespace(kube, name) as space,
            nodes(kube, pool(name, 2)) as (hot, cold),
        ):
            # To the scheduler the hot node is the emptier one: it sees requests alone.
            busy = pod_of("busy", name, cpu_milli=32_000, cpu_utilization=1.0, memory_bytes=GIB)
            quiet = pod_of("quiet", name, cpu_milli=64_000, cpu_utilization=0.1)
            quiet["spec"]["containers"][0]["resources"]["requests"]["memory"] = str(64 * GIB)
            for each, at in ((busy, hot), (quiet, cold)):
                each["spec"]["nodeName"] = at
                await kube.create(PODS, each, space)

            async def land(asked: Asked, pod: str) -> str:
                probe = pod_of(pod, name, cpu_milli=1000, memory_bytes=GIB, cpu_utilization=0.0)
                await kube.create(PODS, probe, space)
                pods = asked.source.pods

                def bound() -> str | None:
                    item = pods.get(pod, space)
                    return item["spec"].get("nodeName") if item else None

                return await pods.until(bound, LIMIT_S)

            async with served(kube, space) as asked:
                assert await land(asked, "before") == hot
            async with served(kube, space, avoid_pressure=0.5) as asked:
                source = asked.source
                assert source.tainting is not None

                def avoided(*names: str) -> bool | None:
                    assert source.tainting is not None
                    return source.tainting.avoided == list(names) or None

                await source.nodes.until(lambda: avoided(hot), LIMIT_S)
                assert (await asked.json("/health"))["avoiding"] == [hot]
                assert (await asked.metrics())["roost_exporter_avoided_nodes"][""] == 1
                assert await land(asked, "during") == cold
                # The fake node's own taint is still there, and was never another's business.
                node = source.nodes.get(hot)
                assert node is not None
                assert [each["effect"] for each in node["spec"]["taints"]] == [
                    "NoSchedule", "PreferNoSchedule"
                ]  # fmt: skip
                # Somebody else's taint, written at the same time, is not lost.
                await kube.patch(
                    NODES, hot,
                    {"spec": {"taints": [*node["spec"]["taints"],
                                         {"key": "mine", "effect": "PreferNoSchedule"}]}},
                )  # fmt: skip
                calm = {"metadata": {"annotations": {CPU_UTILIZATION_ANNOTATION: "0.1"}}}
                await kube.patch(PODS, "busy", calm, space)
                await source.nodes.until(lambda: avoided(), LIMIT_S)
                assert source.tainting.writes <= 2
                calm["metadata"]["annotations"][CPU_UTILIZATION_ANNOTATION] = "1"
                await kube.patch(PODS, "busy", calm, space)
                await source.nodes.until(lambda: avoided(hot), LIMIT_S)
            # At the end ours is taken off, and only ours.
            node = await kube.get(NODES, hot)
            assert not is_tainted(node)
            assert [each["key"] for each in node["spec"]["taints"]] == [
                "kwok.x-k8s.io/node",
                "mine",
            ]
            for each in ("busy", "quiet", "before", "during"):
                await kube.delete(PODS, each, space, grace_s=0)

    run(body)


def test_a_taint_that_a_killed_exporter_left_is_taken_off(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with (
            await cluster.connect() as kube,
            namespace(kube, name) as space,
            nodes(kube, pool(name, 1)) as (calm,),
        ):
            left = retainted(await kube.get(NODES, calm), tainted=True)
            await kube.patch(NODES, calm, {"spec": left["spec"]})
            async with served(kube, space, avoid_pressure=0.5) as asked:
                source = asked.source

                def free() -> bool | None:
                    node = source.nodes.get(calm)
                    return (node is not None and not is_tainted(node)) or None

                await source.nodes.until(free, LIMIT_S)

    run(body)


def test_feedback_becomes_a_wish_on_the_vm(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with (
            await cluster.connect() as kube,
            namespace(kube, name) as space,
            nodes(kube, pool(name, 2)) as (first, second),
        ):
            await install_crd(kube)
            vm = VM(name="web", namespace=space, cpu_milli=1000, memory_bytes=GIB)
            for each in ("web", "idle"):
                await kube.create(VMS, to_object(vm) | {"metadata": {"name": each}}, space)
            status = {"status": {"phase": "Running", "nodeName": first}}
            await kube.patch(VMS, "web", status, space, part="status")
            async with served(kube, space) as asked:
                moves = [
                    {"vm_id": "web", "from_node": first, "to_node": second},
                    {"vm_id": "web", "from_node": second, "to_node": first},
                    {"vm_id": "idle", "to_node": first},
                    {"vm_id": "nobody", "from_node": first, "to_node": second},
                    {"vm_id": f"{space}/web", "from_node": first, "to_node": "nowhere"},
                ]
                path = "/feedback?wait_s=0.2"
                answer = await asked.client.post(path, json={"migrations": moves})
                assert answer.status_code == 200, answer.text
                results = answer.json()["results"]
                assert answer.json()["accepted"] == 1
                assert (results[0]["phase"], results[0]["chosen"]) == ("Requested", None)
                codes = [each["error"]["code"] for each in results[1:]]
                assert codes == ["conflict", "conflict", "not_found", "not_found"]
                noted = (await kube.get(VMS, "web", space))["status"]
                assert noted["evacuationNodeName"] == first
                assert noted["evacuation"]["cause"] == "request"
                assert noted["evacuation"]["wantedNode"] == second
                # The next one is told that it is leaving already, and changes nothing.
                again = await asked.client.post(path, json={"migrations": [moves[0]]})
                assert "to leave" in again.json()["results"][0]["error"]["message"]

    run(body)
