"""VMs as pods on a real control plane: they run where the scheduler says, and leave no trace."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from roost.base.errors import Conflict, InvalidRequest
from roost.kube.base.client import NODES, PODS, VMS, Kube, Resource
from roost.kube.base.failures import AlreadyExists
from roost.kube.base.names import (
    CPU_UTILIZATION_ANNOTATION,
    FINALIZER,
    NAME_LABEL,
    ZONE_LABEL,
)
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.nodes import NodePool
from roost.kube.vms.assignments import node_of, read_statistics
from roost.kube.vms.launchers import launcher_pod
from roost.kube.vms.spec import VM, Group, from_object, parse_group
from roost.kube.vms.vmlist import cleanup_all, create_vm, delete_vm, sync
from tests.kube.clusters import LIMIT_S, run
from tests.kube.keeping import GIB, Space, controller, space


def pods_of(there: Space, name: str) -> list[Object]:
    """Return all pods of a VM."""
    return [pod for pod in there.pods if pod["metadata"]["labels"][NAME_LABEL] == name]


def test_a_vm_runs_and_its_status_tells_where(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name) as there:
            await there.create("web", cpu_milli=2500)
            status = await there.running("web")
            [pod] = there.pods
            assert status["nodeName"] == pod["spec"]["nodeName"]
            assert status["nodeName"] in there.nodes
            assert status["podName"] == pod["metadata"]["name"]
            assert (status["allocatedCpu"], status["allocatedMemory"]) == ("2500m", "1Gi")
            assert await node_of(there.kube, "web", name) == status["nodeName"]
            # What it uses is seen on its pod, and the pod stays.
            used = {"spec": {"utilization": {"cpu": "0.9"}}}
            await there.kube.patch(VMS, "web", used, name)
            await there.pods.until(
                lambda: [
                    each for each in there.pods
                    if each["metadata"]["annotations"][CPU_UTILIZATION_ANNOTATION] == "0.9"
                ] or None,
                LIMIT_S,
            )  # fmt: skip
            with pytest.raises(AlreadyExists, match="already"):
                await there.create("web", cpu_milli=4000)
            await there.kube.delete(VMS, "web", name)
            await there.gone()
            assert len(there.pods_ever) == 1

    run(body)


def test_a_vm_goes_without_a_controller_too(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, settings=None) as there:
            vm = await there.create("web")
            item = await there.kube.get(VMS, "web", name)
            for number in (0, 1):
                await there.kube.create(PODS, launcher_pod(vm, item, number), name)
            assert await delete_vm(there.kube, "web", name)
            assert not await delete_vm(there.kube, "web", name)
            # A pod whose VM is no more, and which its finalizer keeps.
            await there.kube.create(PODS, launcher_pod(vm, item, 0), name)
            assert await cleanup_all(there.kube, name) == ["web"]
            await there.gone()

    run(body)


class Racing(Kube):
    """A session in whose way another makes a VM of the same name, just when one was deleted."""

    raced = False

    async def patch(self, resource: Resource, name: str, *more: Any, **named: Any) -> Object:
        """Change something; the first time, another was faster."""
        answer = await super().patch(resource, name, *more, **named)
        if resource is VMS and not self.raced:
            self.raced = True
            again = VM(name=name, namespace=more[1], cpu_milli=1, memory_bytes=GIB)
            await create_vm(self, again)
            raise Conflict("by a test")
        return answer


def test_a_vm_made_anew_while_the_last_one_is_deleted_stays(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with (
            space(cluster, name, 1, settings=None) as there,
            await Racing.open(cluster.kubeconfig) as racing,
        ):
            await there.create("web")
            first = await there.kube.get(VMS, "web", name)
            # That another has its name by now does not keep it waiting.
            assert await delete_vm(racing, "web", name, wait_s=LIMIT_S / 4)
            second = await there.kube.get(VMS, "web", name)
            assert second["metadata"]["uid"] != first["metadata"]["uid"]
            assert "deletionTimestamp" not in second["metadata"]

    run(body)


class Hurried(Kube):
    """A session in whose way another makes a VM anew, and it runs, before its pods are listed."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.hurry: Callable[[], Awaitable[None]] | None = None

    async def delete(self, resource: Resource, name: str, *more: Any, **named: Any) -> None:
        """Delete something; the first time, another goes on at once."""
        await super().delete(resource, name, *more, **named)
        if resource is VMS and (hurry := self.hurry) is not None:
            self.hurry = None
            await hurry()


def test_the_end_of_a_vm_is_waited_for_and_not_that_of_the_next(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with space(cluster, name) as there, await Hurried.open(cluster.kubeconfig) as kube:
            await there.create("web")
            first = await there.until("web", lambda status: status.get("phase") == "Running")

            async def again() -> None:
                gone = first["metadata"]["uid"]
                await there.vms.until(lambda: uid_of("web") != gone, LIMIT_S)
                await there.create("web")
                await there.vms.until(lambda: uid_of("web") not in (None, gone), LIMIT_S)
                await there.running("web")

            def uid_of(vm: str) -> str | None:
                return ((there.vms.get(vm, name) or {}).get("metadata") or {}).get("uid")

            kube.hurry = again
            assert await delete_vm(kube, "web", name, wait_s=LIMIT_S / 4)
            second = await there.kube.get(VMS, "web", name)
            assert second["metadata"]["uid"] != first["metadata"]["uid"]
            # It lost no pod by it, nor has it got another.
            assert second["status"]["phase"] == "Running"
            assert "restarts" not in second["status"]
            await there.pods.catch_up(LIMIT_S)
            assert len(there.pods_ever) == 2
            assert [pod["metadata"]["name"] for pod in there.pods] == [second["status"]["podName"]]

    run(body)


def test_what_does_not_fit_waits_with_the_schedulers_reason(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with space(cluster, name, 2, memory="4GiB") as there:
            names = [f"vm-{number}" for number in range(10)]
            for each in names:
                await there.create(each)
            found = await there.decided(names)
            assert len(found.scheduled) == 8
            assert set(Counter(found.scheduled.values()).values()) == {4}
            assert len(found.pending) == 2
            assert all("Insufficient memory" in each.reason for each in found.pending)
            waits = found.pending[0].vm
            vm = await there.until(waits, lambda status: status.get("reason"))
            assert vm["status"]["phase"] == "Scheduling"
            assert "Insufficient memory" in vm["status"]["reason"]
            # Room that comes free is taken.
            await delete_vm(there.kube, next(iter(found.scheduled)), name)

            def taken() -> bool:
                return sum(bool(pod["spec"].get("nodeName")) for pod in there.pods) == 8

            await there.pods.until(taken, LIMIT_S)
            assert len((await read_statistics(there.kube, name)).pending) == 1

    run(body)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("rule", "count", "fits"),
    [
        ("web anti-affinity host", 5, 4),
        ("web anti-affinity zone", 3, 2),
        ("web affinity zone", 4, 4),
        ("web affinity host", 4, 4),
        ("web spread zone", 5, 5),
        ("web spread host max-skew=2", 6, 6),
    ],
)
def test_rules_reach_the_scheduler_and_hold(
    cluster: LocalCluster, name: str, rule: str, count: int, fits: int
) -> None:
    async def body() -> None:
        async with space(cluster, name, 4, zones=("a", "b")) as there:
            names = [f"vm-{number}" for number in range(count)]
            for each in names:
                await there.create(each, groups=(parse_group(rule),))
            found = await there.decided(names)
            assert len(found.scheduled) == fits, found
            assert len(found.pending) == count - fits
            for each in found.scheduled:
                await there.running(each)
            assert await there.broken_rules() == []

    run(body)


def test_a_vm_stays_in_its_zones(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 4, zones=("a", "b")) as there:
            for number in range(4):
                await there.create(f"b-{number}", zones=("b",))
            await there.create("c", zones=("c",))
            found = await there.decided([*(f"b-{number}" for number in range(4)), "c"])
            assert set(found.scheduled.values()) == {f"{name}-node-2", f"{name}-node-4"}
            assert [each.vm for each in found.pending] == ["c"]
            assert "node affinity" in found.pending[0].reason
            for each in found.scheduled:
                await there.running(each)
            assert await there.broken_rules() == []
            # And what is put elsewhere is found out.
            await there.kube.patch(
                NODES, f"{name}-node-2", {"metadata": {"labels": {ZONE_LABEL: "a"}}}
            )
            wrong = await there.broken_rules()
            assert {each.rule for each in wrong} == {"zones b"}

    run(body)


def test_a_target_may_go_where_only_its_source_is_in_the_way(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with space(cluster, name, 2, zones=("a", "b"), settings=None) as there:
            # Each rule of its own: alone in its group, a VM can always move to the other node.
            rules = (
                "one anti-affinity zone",
                "two affinity host",
                "three spread host",
                "four spread zone",
            )
            for number, rule in enumerate(rules):
                vm = await there.create(f"vm-{number}", groups=(parse_group(rule),))
                item = await there.kube.get(VMS, vm.name, name)
                first = await there.kube.create(PODS, launcher_pod(vm, item, 0), name)
                at = await there.pods.until(
                    lambda first=first: _node(there, first),  # type: ignore[misc]
                    LIMIT_S,
                )
                item["status"] = {"podName": first["metadata"]["name"]}
                second = await there.kube.create(
                    PODS, launcher_pod(vm, item, 1, exclude_nodes=[at]), name
                )
                to = await there.pods.until(
                    lambda second=second: _node(there, second),  # type: ignore[misc]
                    LIMIT_S,
                    rule,
                )
                assert {at, to} == set(there.nodes), rule

    run(body)


def _node(there: Space, pod: Object) -> str | None:
    found = there.pods.get(pod["metadata"]["name"], there.name)
    return (found or {}).get("spec", {}).get("nodeName")


def test_a_hard_spread_is_not_broken_by_a_move(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        # Zone a has two nodes and one of them two members; zone b has one node and one member.
        # Who leaves a's full node for a's empty one keeps a at two, and b at one. Who leaves b
        # makes three of a, and none of b: only if the scheduler sees b at all does it refuse.
        pools = (2, "a"), (1, "b")
        async with space(cluster, name, 1, settings=None) as there:
            for count, zone in pools:
                for number in range(count):
                    labels = {"test": name, "part": "spread"}
                    made = NodePool(name=f"{name}-{zone}", zones=(zone,), labels=labels)
                    node = made.node(number)
                    await there.kube.create(NODES, node)
                    there.nodes.append(node["metadata"]["name"])
            group = (Group(name="web", rule="spread", scope="zone"),)
            full, other = f"{name}-a-1", f"{name}-b-1"
            try:
                for number, at in enumerate([full, full, other]):
                    vm = msgspec.structs.replace(
                        there.vm(f"vm-{number}", groups=group),
                        node_labels={"test": name, "part": "spread"},
                    )
                    item = await create_vm(there.kube, vm)
                    await there.kube.create(PODS, launcher_pod(vm, item, 0, node=at), name)
                item["status"] = {"podName": launcher_pod(vm, item, 0)["metadata"]["name"]}
                # vm-2 leaves b for a: 3 there and 0 here would be a skew of 3.
                target = await there.kube.create(
                    PODS, launcher_pod(vm, item, 1, exclude_nodes=[other]), name
                )
                refused = await there.pods.until(lambda: _refused(there, target), LIMIT_S)
                assert "topology spread" in refused
            finally:
                await cleanup_all(there.kube, name)
                for node_name in there.nodes[1:]:
                    await there.kube.delete(NODES, node_name)

    run(body)


def _refused(there: Space, pod: Object) -> str | None:
    found = there.pods.get(pod["metadata"]["name"], there.name) or {}
    for each in (found.get("status") or {}).get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return str(each["message"])
    return None


def test_a_forced_vm_is_where_it_was_put(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name) as there:
            await there.create("here", node=there.nodes[1])
            assert (await there.running("here"))["nodeName"] == there.nodes[1]
            # One that is forced onto a node that is not there waits for it, without a pod.
            late = f"{name}-late-1"
            await there.create("late", node=late)
            vm = await there.until("late", lambda status: status.get("reason"))
            assert (vm["status"]["phase"], vm["status"]["reason"]) == (
                "Pending",
                f"node {late} is not there",
            )
            assert pods_of(there, "late") == []
            await there.kube.create(NODES, NodePool(name=f"{name}-late").node(0))
            try:
                assert (await there.running("late"))["nodeName"] == late
            finally:
                await there.kube.delete(NODES, late)

    run(body)


def test_a_list_is_brought_about_and_then_nothing_is_done(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name) as there:
            await there.create("by-hand")
            listed = [there.vm(f"vm-{number}") for number in range(4)]
            done = await sync(there.kube, name, listed)
            assert done.created == ["vm-0", "vm-1", "vm-2", "vm-3"]
            for each in ("by-hand", *done.created):
                await there.running(each)
            before = (await there.kube.list(VMS, name)).items
            again = await sync(there.kube, name, listed)
            assert (again.created, again.updated, again.deleted, again.unchanged) == ([], [], [], 4)
            assert (await there.kube.list(VMS, name)).items == before
            changed = [there.vm("vm-0", cpu_utilization=0.1), *listed[1:3], there.vm("vm-9")]
            done = await sync(there.kube, name, changed)
            assert (done.created, done.updated, done.deleted) == (["vm-9"], ["vm-0"], ["vm-3"])
            # What was not on a list before stays.
            there_now = await there.kube.get(VMS, "by-hand", name)
            with pytest.raises(Conflict, match=r"VM by-hand in .* was not made from a list"):
                await sync(there.kube, name, [there.vm("by-hand", cpu_utilization=0.1)])
            assert await there.kube.get(VMS, "by-hand", name) == there_now
            assert await there.kube.get(VMS, "vm-9", name)  # nothing was done at all
            twice = [there.vm("a"), there.vm("a")]
            with pytest.raises(InvalidRequest, match="twice"):
                await sync(there.kube, name, twice)

    run(body)


def test_a_vm_that_is_switched_off_has_no_pod(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name) as there:
            await there.create("web")
            await there.running("web")
            await there.kube.patch(VMS, "web", {"spec": {"running": False}}, name)
            await there.pods.until(lambda: not len(there.pods), LIMIT_S)
            vm = await there.until("web", lambda status: status["phase"] == "Pending")
            assert "switched off" in vm["status"]["reason"]
            await there.kube.patch(VMS, "web", {"spec": {"running": True}}, name)
            await there.running("web")
            assert len(there.pods) == 1

    run(body)


def _asks(resources: Object, **more: Object) -> Object:
    kind = {"apiVersion": VMS.api_version, "kind": VMS.kind}
    return {**kind, "metadata": {"name": "vm"}, "spec": {"resources": resources, **more}}


def test_the_api_server_refuses_what_makes_no_sense(cluster: LocalCluster, name: str) -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}

    def two(rule: str) -> Object:
        return {"groups": [{"name": each, "rule": rule} for each in ("a", "b")]}

    refused = (
        (_asks({"cpu": "-1", "memory": "1Gi"}), "resources.cpu"),
        (_asks({"cpu": "1", "memory": "lots"}), "resources.memory"),
        (_asks({"cpu": "1"}), "resources.memory: Required"),
        (_asks(amounts, utilization={"cpu": "1.5"}), "utilization.cpu"),
        (_asks(amounts, placement=two("affinity")), "one hard affinity group"),
        (_asks(amounts, placement=two("spread")), "one hard and one soft spread"),
        (_asks(amounts) | {"metadata": {"name": "x" * 64}}, "at most 63 characters"),
    )

    async def body() -> None:
        async with space(cluster, name, 1, settings=None) as there:
            for asked, said in refused:
                with pytest.raises(InvalidRequest, match=said):
                    await there.kube.create(VMS, asked, name)
            fine = _asks({"cpu": 2, "memory": "1Gi"}, placement=two("anti-affinity"))
            made = from_object(await there.kube.create(VMS, fine, name))
            assert (made.cpu_utilization, made.memory_utilization) == (0.5, 0.8)
            assert (made.dirty_rate_mbps, made.cpu_milli, made.memory_bytes) == (800, 2000, GIB)

    run(body)


def test_a_pod_that_fails_is_replaced_and_one_that_is_deleted_too(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with space(cluster, name) as there:
            await create_vm(there.kube, there.vm("web"))
            status = await there.running("web")
            failed = {"status": {"phase": "Failed", "reason": "Broken", "message": "by a test"}}
            await there.kube.patch(PODS, status["podName"], failed, name, part="status")
            vm = await there.until("web", lambda told: told["phase"] == "Failed")
            assert vm["status"]["reason"] == "Broken: by a test"
            assert vm["status"]["failures"]["count"] == 1
            await there.running("web")
            assert len(there.pods_ever) == 2
            # Somebody deletes the pod; its finalizer alone would keep it, and nobody runs it.
            [pod] = there.pods
            assert pod["metadata"]["finalizers"] == [FINALIZER]
            await there.kube.delete(PODS, pod["metadata"]["name"], name)

            def replaced() -> bool:
                return len(there.pods_ever) == 3 and len(there.pods) == 1

            await there.pods.until(replaced, LIMIT_S)
            await there.running("web")

    run(body)


def test_a_vm_leaves_a_node_that_is_deleted(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name) as there:
            await there.create("web")
            was = (await there.running("web"))["nodeName"]
            await there.kube.delete(NODES, was)
            await there.running("web", but=was)
            assert len(there.pods) == 1

    run(body)


def test_an_evacuation_mark_keeps_a_new_pod_off_that_node(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 2, settings=None) as there:
            vm = await there.create("web")
            status = {"evacuationNodeName": there.nodes[0], "evacuation": {"cause": "eviction"}}
            await there.kube.patch(VMS, vm.name, {"status": status}, name, part="status")
            async with controller(there.kube, name):
                now = await there.running("web")
                assert now["nodeName"] == there.nodes[1]
                assert "evacuationNodeName" not in now

    run(body)


def test_a_marked_vm_that_fits_only_there_starts_there(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 1, settings=None) as there:
            vm = await there.create("web")
            status = {"evacuationNodeName": there.nodes[0], "evacuation": {"cause": "eviction"}}
            await there.kube.patch(VMS, vm.name, {"status": status}, name, part="status")
            async with controller(there.kube, name):
                assert (await there.running("web"))["nodeName"] == there.nodes[0]

    run(body)
