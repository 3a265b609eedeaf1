"""Disruption budgets over VMs, however they are worded, as the real controller counts them."""

import asyncio
from typing import Any

import msgspec
import pytest

from roost.base.errors import InvalidRequest, RoostError
from roost.kube.base.client import BUDGETS, CRDS, PODS, VMS, Kube, TooManyRequests
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import APP, APP_LABEL
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.vms.crd import CRD_NAME, crd, install_crd
from tests.kube.clusters import LIMIT_S, run
from tests.kube.keeping import space
from tests.kube.moving import QUICK, Rig, controller, rig

NAMES = ["a", "b", "c"]
#: A copy takes a quarter of a second, or longer than any test.
QUICKER = msgspec.structs.replace(QUICK, speed=30.0)
ENDLESS = msgspec.structs.replace(QUICK, speed=0.01)
NO_SCALE = "does not implement the scale subresource"
MOVING = ("Scheduling", "Copying", "Handover")


async def budget(made: Rig, name: str = "keep", **words: Any) -> Mirror:
    """Make a budget over all VMs of a test; return a mirror of it."""
    spec = {"selector": {"matchLabels": {APP_LABEL: APP}}, **words}
    await made.kube.create(BUDGETS, {"metadata": {"name": name}, "spec": spec}, made.space)
    return await Mirror(made.kube, BUDGETS, made.space).start()


async def counted(budgets: Mirror, **wanted: int) -> Object:
    """Wait until Kubernetes has counted so, and return what it says."""

    def look() -> Object | None:
        [found] = budgets
        told: Object = found.get("status") or {}
        return told if all(told.get(key) == value for key, value in wanted.items()) else None

    try:
        # kube-controller-manager hears of a new kind of object after 30 s.
        return await budgets.until(look, 2 * LIMIT_S)
    except RoostError as error:
        raise AssertionError(f"{wanted}: {list(budgets)}") from error


def migration(vm: Object) -> Object:
    found: Object = (vm.get("status") or {}).get("migration") or {}
    return found


def watch_moves(made: Rig) -> tuple[list[int], set[str]]:
    """Return how many moved at each change from now on, and why others waited."""
    most: list[int] = []
    reasons: set[str] = set()

    def heard(_: Object | None, after: Object | None) -> None:
        most.append(sum(migration(vm).get("phase") in MOVING for vm in made.vms))
        if migration(after or {}).get("phase") == "Waiting":
            reasons.add(migration(after or {}).get("reason", ""))

    made.vms.listen(heard)
    return most, reasons


@pytest.mark.parametrize(
    "words",
    [{"maxUnavailable": 1}, {"maxUnavailable": "30%"}, {"minAvailable": "50%"}],
    ids=["at-most-one", "at-most-a-share", "at-least-a-share"],
)
def test_a_budget_that_counts_vms_lets_one_move_at_a_time(
    cluster: LocalCluster, name: str, words: Any
) -> None:
    async def body() -> None:
        async with rig(cluster, name, QUICKER) as made:
            for vm in NAMES:
                await made.vm(vm)
            budgets = await budget(made, **words)
            await counted(budgets, expectedPods=3, desiredHealthy=2, disruptionsAllowed=1)
            await budgets.stop()
            most, reasons = watch_moves(made)
            for vm in NAMES:
                await made.ask(vm)
            told = [await made.moved(vm) for vm in NAMES]
            assert [each["phase"] for each in told] == ["Succeeded"] * 3, told
            assert max(most) == 1
            assert reasons
            assert all("disruption budget keep" in reason for reason in reasons), reasons

    run(body)


def test_an_eviction_under_such_a_budget_moves_one_vm_and_the_next_waits_for_it(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with rig(cluster, name, ENDLESS, webhook=True) as made:
            for vm in NAMES:
                await made.vm(vm)
            budgets = await budget(made, maxUnavailable=1)
            await counted(budgets, disruptionsAllowed=1)
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await made.evict("a")
            await made.until("a", lambda vm: migration(vm).get("phase") == "Copying")
            # Its second pod counts as healthy, but not as a VM: two more seem to be allowed.
            await counted(budgets, currentHealthy=4, expectedPods=3, disruptionsAllowed=2)
            await budgets.stop()
            for vm in ("b", "c"):
                with pytest.raises(TooManyRequests, match="triggered evacuation"):
                    await made.evict(vm)
                waits = await made.until(vm, lambda vm: migration(vm).get("phase") == "Waiting")
                assert migration(waits)["reason"].endswith("disturbed now: 1 under way")
            assert (await made.alone("b"))["status"]["phase"] == "Running"

    run(body)


def test_vms_of_before_their_scale_was_known_are_counted_too(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with await cluster.connect() as kube:
            await install_crd(kube)
        async with rig(cluster, name, None) as made:
            try:
                async with controller(made.kube, made.space):
                    # It stands for one of before: it has brought today's definition along.
                    await without_scale(made.kube)
                    for vm in NAMES:
                        await made.vm(vm)
                    budgets = await budget(made, maxUnavailable=1)
                    await made.ask("a")
                    await made.until("a", lambda vm: NO_SCALE in migration(vm).get("reason", ""))
                assert "replicas" not in (await made.kube.get(VMS, "a", made.space))["spec"]
                # A new one brings the definition up to date, and the budget to be counted again.
                async with controller(made.kube, made.space):
                    assert (await made.moved("a"))["phase"] == "Succeeded"
                    await counted(budgets, expectedPods=3, desiredHealthy=2, disruptionsAllowed=1)
                await budgets.stop()
            finally:
                await install_crd(made.kube)

    run(body)


def test_a_migration_that_fails_makes_no_room_by_the_pod_it_leaves(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        # A copy that cannot converge is given up after some seconds.
        async with rig(cluster, name, msgspec.structs.replace(QUICK, speed=1.0)) as made:
            for vm in (*NAMES, "down"):
                await made.vm(vm, dirty_rate_mbps=12_000 if vm == "a" else 800)
            budgets = await budget(made, maxUnavailable=1)
            await counted(budgets, expectedPods=4, disruptionsAllowed=1)
            await made.ask("a")
            await counted(budgets, currentHealthy=5, disruptionsAllowed=2)
            # As Kubernetes says of the pods of a node that is not ready: it is the one that may be.
            still = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
            pod = await made.pod_of("down")
            await made.kube.patch(PODS, pod, still, made.space, part="status")
            await counted(budgets, currentHealthy=4, disruptionsAllowed=1)
            await made.ask("b")
            most, _ = watch_moves(made)
            assert (await made.moved("a"))["phase"] == "Failed"
            said = "3 healthy, 3 wanted"
            waits = await made.until("b", lambda vm: said in migration(vm).get("reason", ""))
            assert "startedAt" not in migration(waits)
            assert max(most) == 1
            await budgets.stop()

    run(body)


async def without_scale(kube: Kube) -> None:
    """Make VMs known as they were before they had a scale, and wait until that is so."""
    spec = crd()["spec"]
    [version] = spec["versions"]
    version["subresources"] = {"status": {}}
    for part in ("spec", "status"):
        del version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]["replicas"]
    await kube.patch(CRDS, CRD_NAME, {"spec": spec})
    async with asyncio.timeout(LIMIT_S):
        # Nothing tells when the API server serves what it was told.
        while "virtualmachines/scale" in await served(kube):
            await asyncio.sleep(0.05)


async def served(kube: Kube) -> set[str]:
    """Return what the API server says it serves of VMs."""
    return {each["name"] for each in (await kube.call("GET", VMS.prefix))["resources"]}


def test_a_vm_is_one_and_cannot_be_scaled(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 1) as there:
            await there.create("web")
            await there.running("web")
            path = VMS.path(name, "web", "scale")
            scale = await there.kube.call("GET", path)
            assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (1, 1)
            for count in (0, 2):
                with pytest.raises(InvalidRequest, match="replicas"):
                    await there.kube.patch(
                        VMS, "web", {"spec": {"replicas": count}}, name, part="scale"
                    )
            await there.kube.patch(VMS, "web", {"spec": {"running": False}}, name)
            await there.until("web", lambda status: status["phase"] == "Pending")
            assert (await there.kube.call("GET", path))["status"] == {"replicas": 0}

    run(body)
