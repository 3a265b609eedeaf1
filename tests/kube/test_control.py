"""Controllers that end midway, come in pairs or lose the API server: nothing comes twice."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base.errors import NotFound
from roost.kube.base.client import LEASES, PODS, VMS
from roost.kube.base.lease import HOME, LeaseSettings, lease_name
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.parts import API, Setup
from roost.kube.control import ControllerSettings
from roost.kube.vms.launching import LaunchSettings
from roost.kube.vms.vmlist import sync
from tests.kube.clusters import LIMIT_S, cluster_in, run
from tests.kube.keeping import Space, controller, mortal, space

#: More than a life of a VM needs; lives beyond that are never cut short.
MOST_WRITES = 24
SHORT = ControllerSettings(
    launch=LaunchSettings(node_gone_s=0.2), migrate=False, lease=LeaseSettings(duration_s=3.0)
)


async def live(there: Space, vm: str, died: asyncio.Event, done: list[str]) -> None:
    """Lead one VM through its life, from where it is; return early when its controller dies."""

    async def step(name: str, wait: Any) -> bool:
        """Wait for something or the controller's end; say whether to go on."""
        tasks = [asyncio.ensure_future(wait), asyncio.ensure_future(died.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
                done.append(name)
            return tasks[0].done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def pods() -> list[Object]:
        return [pod for pod in there.pods if pod["metadata"]["labels"]["kubevirt.io/domain"] == vm]

    def runs(pod: Object) -> bool:
        return "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"

    async def one_runs() -> None:
        await there.pods.until(lambda: [*map(runs, pods())] == [True], LIMIT_S)
        [pod] = pods()
        await there.until(vm, lambda status: status.get("podName") == pod["metadata"]["name"])
        await there.running(vm)

    async def gone() -> None:
        await there.pods.until(lambda: not pods(), LIMIT_S)
        await there.vms.until(lambda: there.vms.get(vm, there.name) is None, LIMIT_S)
        # No pod came after it.
        assert not (await there.kube.list(PODS, there.name)).items

    if "created" not in done:
        await there.create(vm)
        done.append("created")
    if "ran" not in done and not await step("ran", there.running(vm)):
        return
    if "pod deleted" not in done:
        # Somebody goes past the webhook.
        [pod] = pods()
        metadata = pod["metadata"]
        await there.kube.delete(PODS, metadata["name"], there.name, uid=metadata["uid"])
        await there.pods.until(lambda: not any(map(runs, pods())) or len(pods()) > 1, LIMIT_S)
        done.append("pod deleted")
    if "ran again" not in done and not await step("ran again", one_runs()):
        return
    if "deleted" not in done:
        await there.kube.delete(VMS, vm, there.name)
        done.append("deleted")

    await step("gone", gone())


async def cut_short(cluster: LocalCluster, name: str, writes: int) -> bool:
    """Let a controller end after so many writes and another go on; say whether it did end."""
    async with space(cluster, f"{name}-{writes}", 2, settings=None) as there:
        died, done = asyncio.Event(), list[str]()
        async with await mortal(cluster) as dying:
            dying.died = died.set
            async with controller(dying, there.name) as first:
                await first.until_leading()
                dying.writes_left = writes
                await live(there, "vm", died, done)
        was_alive = not died.is_set()
        if not was_alive:
            async with controller(there.kube, there.name):
                await live(there, "vm", asyncio.Event(), done)
        assert done == ["created", "ran", "pod deleted", "ran again", "deleted", "gone"]
        # The one that was deleted, and the one in its place.
        assert len(there.pods_ever) == 2, (writes, there.pods_ever)
        return not was_alive


def test_whatever_write_a_controller_ends_at_the_next_one_goes_on(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        ended = await asyncio.gather(
            *(cut_short(cluster, name, writes) for writes in range(MOST_WRITES))
        )
        # All writes of a life were tried, each as the last one.
        assert ended[:8] == [True] * 8
        assert not ended[-1]

    run(body)


def test_of_two_controllers_one_works_and_the_other_takes_over(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with space(cluster, name, 2, settings=None) as there:
            async with (
                await mortal(cluster) as dying,
                controller(dying, name, SHORT) as first,
            ):
                await first.until_leading()
                async with controller(there.kube, name, SHORT) as second:
                    await there.create("one")
                    await there.running("one")
                    assert (first.is_leading, second.is_leading) == (True, False)
                    # The first is cut off from the cluster, in the middle of its work.
                    dying.writes_left = -1
                    await there.create("two")
                    await second.until_leading()
                    await there.running("two")
                    lease = await there.kube.get(LEASES, lease_name(name), HOME)
                    assert lease["spec"]["leaseTransitions"] >= 1
                    # By the time another acts it has given up.
                    assert not first.is_leading
            assert len(there.pods_ever) == 2
            # One that ends in peace leaves the lease to whoever comes.
            lease = await there.kube.get(LEASES, lease_name(name), HOME)
            assert lease["spec"]["holderIdentity"] == ""

    run(body)


def test_a_lease_that_is_taken_away_stops_its_holder(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with (
            space(cluster, name, 1, settings=None) as there,
            controller(there.kube, name, SHORT) as held,
        ):
            await held.until_leading()
            taken = {"spec": {"holderIdentity": "someone", "leaseDurationSeconds": 60}}
            await there.kube.patch(LEASES, lease_name(name), taken, HOME)
            async with asyncio.timeout(LIMIT_S):
                await held.until_idle()
            await there.create("web")
            given = {"spec": {"holderIdentity": ""}}
            await there.kube.patch(LEASES, lease_name(name), given, HOME)
            await held.until_leading()
            await there.running("web")
            assert len(there.pods_ever) == 1

    run(body)


def test_a_controller_outlives_the_api_server(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = cluster_in(tmp_path / "c")
        await cluster.up(Setup(pools=()), attached=True)
        try:
            async with space(cluster, "outlives") as there:
                await there.create("before")
                await there.running("before")
                await cluster.stop_part(API, crash=True)
                await cluster.start_part(API, attached=True)
                await there.create("after")
                await there.running("after")
                await there.kube.delete(VMS, "before", there.name)
                with pytest.raises(NotFound):
                    await _until_gone(there, "before")
                assert len(there.pods_ever) == 2
        finally:
            await cluster.down()

    run(body)


async def _until_gone(there: Space, name: str) -> None:
    await there.vms.until(lambda: there.vms.get(name, there.name) is None, LIMIT_S)
    await there.kube.get(VMS, name, there.name)


def test_a_crowd_of_vms_comes_and_goes(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 5) as there:
            listed = [there.vm(f"vm-{number:03}") for number in range(40)]
            await sync(there.kube, name, listed)
            found = await there.decided([vm.name for vm in listed])
            assert len(found.scheduled) == 40
            for vm in listed:
                await there.running(vm.name)
            assert len(there.pods_ever) == 40
            quiet = msgspec.structs.replace
            await sync(there.kube, name, [quiet(vm, cpu_utilization=0.1) for vm in listed[:20]])
            await there.pods.until(lambda: len(there.pods) == 20, LIMIT_S)

    run(body)
