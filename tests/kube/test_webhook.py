"""The webhook keeps VMs from being evicted or deleted away, and keeps nothing else."""

import asyncio

import msgspec
import pytest

from roost.base.errors import Forbidden, RoostError, Unavailable
from roost.kube.base.client import NAMESPACES, NODES, PODS, VMS, WEBHOOKS, Kube, TooManyRequests
from roost.kube.cluster.local import LocalCluster
from roost.kube.moving.cooldown import CoolDown
from roost.kube.moving.webhook import Service, Webhook, configuration
from tests.kube.clusters import LIMIT_S, run
from tests.kube.moving import QUICK, Rig, rig

SLOW = msgspec.structs.replace(QUICK, speed=0.5)


async def evict(kube: Kube, space: str, pod: str, *, dry_run: bool = False) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    query = {"dryRun": "All"} if dry_run else None
    path = PODS.path(space, pod, "eviction")
    await kube.call("POST", path, body=body, query=query, patience_s=0.0)


async def delete(kube: Kube, space: str, pod: str) -> None:
    await kube.call("DELETE", PODS.path(space, pod), patience_s=0.0)


async def evicted(made: Rig, name: str) -> RoostError:
    """Evict until it is answered by who is registered now; the API server may ask the last one."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with pytest.raises(RoostError) as refused:
                await made.evict(name)
            if "failed calling webhook" not in str(refused.value):
                return refused.value
            await asyncio.sleep(0.1)


async def status(made: Rig, name: str = "db") -> dict[str, object]:
    found: dict[str, object] = (await made.kube.get(VMS, name, made.space))["status"]
    return found


def test_a_dry_run_is_refused_and_marks_nothing(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, webhook=True) as made:
            await made.vm("db")
            with pytest.raises(TooManyRequests, match="Eviction triggered evacuation of VMI"):
                await evict(made.kube, made.space, await made.pod_of("db"), dry_run=True)
            assert "evacuationNodeName" not in await status(made)
            assert made.webhook is not None
            assert made.webhook.told == {"known": 1}

    run(body)


def test_deletions_become_migrations_too_one_or_all(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, webhook=True) as made:
            for vm in ("one", "two"):
                await made.vm(vm)
            first = [await made.pod_of(vm) for vm in ("one", "two")]
            with pytest.raises(TooManyRequests, match=r'evacuation of VMI ".*/one"'):
                await delete(made.kube, made.space, await made.pod_of("one"))
            assert (await made.moved("one"))["phase"] == "Succeeded"
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await delete(made.kube, made.space, "")
            # The API server stops at the first that it may not delete.
            assert (await made.moved("one", 2))["phase"] == "Succeeded"
            own = [(await made.alone(vm))["metadata"]["name"] for vm in ("one", "two")]
            assert own[0] != first[0]
            assert own[1] == first[1]

    run(body)


def test_evictions_are_refused_while_the_vm_cools_down(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        cool = msgspec.structs.replace(QUICK, cool_down=CoolDown(base_s=600.0))
        async with rig(cluster, name, cool, webhook=True) as made:
            await made.vm("db")
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await made.evict("db")
            await made.moved("db")
            with pytest.raises(TooManyRequests, match=r"stays until .*Z \(\d+ s\)") as refused:
                await made.evict("db")
            assert "triggered evacuation" not in str(refused.value)
            assert "evacuationNodeName" not in await status(made)
            # What a user asks for is done all the same, and cools down for longer.
            first = (await status(made))["coolDownUntil"]
            await made.ask("db")
            assert (await made.moved("db", 2))["phase"] == "Succeeded"
            assert str((await status(made))["coolDownUntil"]) > str(first)
            # So is what empties a node.
            node = str((await status(made))["nodeName"])
            await made.kube.patch(NODES, node, {"spec": {"unschedulable": True}})
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await made.evict("db")
            assert (await made.moved("db", 3))["phase"] == "Succeeded"

    run(body)


def test_a_target_cannot_be_taken_away(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, SLOW, webhook=True) as made:
            await made.vm("db")
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await made.evict("db")
            vm = await made.until(
                "db", lambda vm: vm["status"].get("migration", {}).get("phase") == "Copying"
            )
            target = vm["status"]["migration"]["targetPod"]
            with pytest.raises(TooManyRequests, match="target of a migration of VMI"):
                await evict(made.kube, made.space, target)
            with pytest.raises(Forbidden, match="target of a migration of VMI"):
                await made.kube.delete(PODS, target, made.space)
            asked = (await status(made))["evacuation"]
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await made.evict("db")
            assert (await status(made))["evacuation"] == asked

    run(body)


def test_without_the_webhook_evictions_are_refused_and_vms_can_still_go(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with rig(cluster, name) as made:
            webhook = Webhook(made.kube, namespace=made.space, keep=True)
            await webhook.start()
            try:
                source = await made.vm("db")
                first = await made.pod_of("db")
                await webhook.stop()  # what is registered stays, as after a crash
                with pytest.raises(RoostError, match="failed calling webhook"):
                    await made.evict("db")
                own = await made.alone("db")
                assert (own["metadata"]["name"], own["spec"]["nodeName"]) == (first, source)
                # Moving and deleting go on: the controller lets pods go before it deletes them.
                await made.ask("db")
                assert (await made.moved("db"))["phase"] == "Succeeded"
                await made.kube.delete(VMS, "db", made.space)
                await made.pods.until(lambda: not made.pods_of("db") or None, LIMIT_S)
                # One that comes back registers itself anew, with another certificate.
                await made.vm("web")
                again = Webhook(made.kube, namespace=made.space)
                await again.start()
                assert "triggered evacuation" in str(await evicted(made, "web"))
                await again.stop()
                with pytest.raises(RoostError, match="not found"):
                    await made.kube.get(WEBHOOKS, webhook.configuration)
            finally:
                await made.kube.delete(WEBHOOKS, webhook.configuration)

    run(body)


def test_what_is_not_a_vms_pod_may_go(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, webhook=True) as made:
            plain = {
                "spec": {
                    "nodeSelector": {"test": name},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "image": "none"}],
                }
            }
            for pod in ("nginx", "virt-launcher-stranger"):
                await made.kube.create(PODS, {"metadata": {"name": pod}} | plain, made.space)
                await evict(made.kube, made.space, pod)
            # A namespace that goes takes its VMs along, however they are kept.
            await made.vm("db")
            await made.kube.delete(NAMESPACES, made.space)
            await delete(made.kube, made.space, await made.pod_of("db"))
            await made.pods.until(lambda: not made.pods_of("db") or None, LIMIT_S)

    run(body)


def test_many_evictions_of_a_vm_at_once_are_one_migration(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        # The copy takes 3.7 s: all are answered before it ends.
        slower = msgspec.structs.replace(QUICK, speed=2.0)
        async with rig(cluster, name, slower, webhook=True) as made:
            await made.vm("db")
            pod = await made.pod_of("db")
            asked = [evict(made.kube, made.space, pod) for _ in range(10)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(each, TooManyRequests) for each in answers), answers
            assert (await made.moved("db"))["phase"] == "Succeeded"
            assert made.webhook is not None
            assert made.webhook.told == {"marked": 1, "known": 9}
            assert (await status(made))["migration"]["number"] == 1  # type: ignore[index]

    run(body)


def test_a_pod_that_stands_still_may_be_deleted_and_another_starts(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with rig(cluster, name, webhook=True) as made:
            await made.vm("db")
            first = await made.pod_of("db")
            # As Kubernetes says of the pods of a node that is not ready.
            still = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
            await made.kube.patch(PODS, first, still, made.space, part="status")
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await made.evict("db")
            vm = await made.until("db", lambda vm: vm["status"].get("migration"))
            waits = vm["status"]["migration"]
            assert (waits["phase"], waits["reason"]) == ("Waiting", "its pod does not run")
            await delete(made.kube, made.space, first)
            await made.until("db", lambda vm: vm["status"].get("podName") not in (first, None))
            assert (await made.alone("db"))["metadata"]["name"] != first

    run(body)


def test_a_port_in_use_is_named(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, None, webhook=True) as made:
            assert made.webhook is not None
            second = Webhook(made.kube, port=made.webhook.port)
            with pytest.raises(Unavailable, match=f"cannot listen on .*:{made.webhook.port}"):
                await second.start()

    run(body)


def test_inside_a_cluster_it_is_reached_through_a_service() -> None:
    made = configuration("x", b"ca", Service("roost", "webhook"))["webhooks"][0]
    assert made["clientConfig"]["service"] == {
        "namespace": "roost", "name": "webhook", "port": 443, "path": "/validate",
    }  # fmt: skip
    assert (made["failurePolicy"], made["timeoutSeconds"]) == ("Fail", 10)
