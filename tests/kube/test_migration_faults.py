"""Whatever is lost on the way, a VM ends up with one pod that runs, and no write is made twice."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.kube.base.client import NODES, PODS, VMS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.parts import API, ETCD, KWOK, SCHEDULER, Setup
from roost.kube.control import Controller, ControllerSettings
from roost.kube.vms.launchers import free_pod, pod_name
from tests.kube.clusters import LIMIT_S, cluster_in, namespace, nodes, pool, run
from tests.kube.moving import QUICK, Rig, migrations, rig

#: Slow enough to do something while a copy is under way.
SLOW = msgspec.structs.replace(QUICK, speed=0.5)


NEVER = 1000


class Dying(Kube):
    """A session whose process dies just before one of its writes: what it did so far is stored."""

    dies_at, writes = NEVER, 0

    async def call(self, method: str, path: str, **more: Any) -> Object:
        """Send a request, unless dead."""
        if method == "GET":
            return await super().call(method, path, **more)
        if self.died.is_set():
            await asyncio.Event().wait()
        self.writes += 1
        if self.writes == self.dies_at:
            self.died.set()
            await asyncio.Event().wait()
        return await super().call(method, path, **more)

    @property
    def died(self) -> asyncio.Event:
        """Return what tells that it has died."""
        event: asyncio.Event = self.__dict__.setdefault("_died", asyncio.Event())
        return event


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("dirty_rate", "end"), [(800, "Succeeded"), (12_000, "Failed")], ids=["moves", "aborts"]
)
def test_a_controller_that_dies_at_any_write_is_taken_over_from(
    cluster: LocalCluster, name: str, dirty_rate: float, end: str
) -> None:
    async def case(kube: Kube, at: Mirror, dies_at: int) -> tuple[int, Object]:
        """Let one die; return its writes until then, and what became of the migration."""
        space = f"dies-{end.lower()}-{dies_at}"
        async with namespace(kube, space), await Dying.open(cluster.kubeconfig) as dying:
            dying.dies_at = dies_at
            made = Rig(kube, space, name, [])
            await made.vms.start()
            await made.pods.start()
            source = await made.vm("db", dirty_rate_mbps=dirty_rate)
            first, mirrors = await migrations(dying, made, at)
            await made.ask("db")
            dead = asyncio.create_task(dying.died.wait())
            done = asyncio.create_task(made.moved("db"))
            await asyncio.wait([dead, done], return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                await made.alone("db")  # the last writes are those that tidy up
            await first.stop()
            second, more = await migrations(kube, made, at)
            told = await done
            own = await made.alone("db")
            assert own["spec"]["nodeName"] == (told["targetNode"] if end != "Failed" else source)
            vm = await made.kube.get(VMS, "db", space)
            assert len(vm["status"]["migrations"]) == 1
            assert "evacuation" not in vm["status"]
            await second.stop()
            dead.cancel()
            await asyncio.gather(dead, return_exceptions=True)
            for mirror in (*mirrors, *more, made.vms, made.pods):
                await mirror.stop()
            return dying.writes, told

    async def body() -> None:
        async with await cluster.connect() as kube, nodes(kube, pool(name, 3, pods=500)):
            keeper = Controller(kube, settings=ControllerSettings(migrate=False, lease=None))
            await keeper.start()
            at = await Mirror(kube, NODES).start()
            writes, whole = await case(kube, at, NEVER)
            cases = range(1, writes + 1)
            told = await each_of(cases, lambda one: case(kube, at, one), at_once=8)
            await at.stop()
            await keeper.stop()
        assert (whole["phase"], writes >= 6) == (end, True), (whole, writes)
        for one, (_, migration) in zip(cases, told, strict=True):
            assert (migration["phase"], migration["number"]) == (end, 1), (one, migration)

    run(body)


def test_a_target_whose_node_goes_is_given_up(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, SLOW) as made:
            source = await made.vm("db")
            first = await made.pod_of("db")
            await made.ask("db")
            vm = await made.until("db", lambda vm: moving(vm) == "Copying")
            target = vm["status"]["migration"]["targetNode"]
            await made.kube.delete(NODES, target)
            told = await made.moved("db")
            assert told["phase"] == "Failed"
            assert "target" in told["reason"], told
            own = await made.alone("db")
            assert (own["metadata"]["name"], own["spec"]["nodeName"]) == (first, source)

    run(body)


def test_a_vm_whose_node_goes_starts_anew_elsewhere(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, SLOW) as made:
            source = await made.vm("db")
            await made.ask("db")
            await made.until("db", lambda vm: moving(vm) == "Copying")
            await made.kube.delete(NODES, source)
            told = await made.moved("db")
            # The memory was on that node: what had been copied of it is of no use.
            assert told["phase"] == "Failed"
            assert "source" in told["reason"], told
            await made.until("db", lambda vm: vm["status"].get("nodeName") not in (source, None))
            own = await made.alone("db")
            assert own["spec"]["nodeName"] != source

    run(body)


def test_a_source_that_is_taken_away_ends_the_migration(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, SLOW) as made:
            await made.vm("db")
            first = made.pods_of("db")[0]
            await made.ask("db")
            await made.until("db", lambda vm: moving(vm) == "Copying")
            await free_pod(made.kube, first)  # as an admin may do who removes finalizers
            told = await made.moved("db")
            assert told["phase"] == "Failed"
            assert told["reason"] in ("the source pod is gone", "the source pod was deleted")
            own = await made.alone("db")
            assert own["metadata"]["uid"] != first["metadata"]["uid"]
            assert own["metadata"]["name"] != told["targetPod"]

    run(body)


def test_a_vm_that_is_deleted_while_it_moves_leaves_nothing(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with rig(cluster, name, SLOW) as made:
            await made.vm("db")
            await made.ask("db")
            await made.until("db", lambda vm: moving(vm) == "Copying")
            assert len(made.pods_of("db")) == 2
            await made.kube.delete(VMS, "db", made.space)
            await made.vms.until(lambda: made.vms.get("db", made.space) is None or None, LIMIT_S)
            await made.pods.until(lambda: not made.pods_of("db") or None, LIMIT_S)

    run(body)


def test_a_vm_that_is_in_another_pod_by_now_does_not_move(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, SLOW, migrate=False) as made:
            await made.vm("db")
            there = await Mirror(made.kube, NODES).start()
            moves, mirrors = await migrations(made.kube, made, there, SLOW)
            await made.ask("db")
            vm = await made.until("db", lambda vm: moving(vm) == "Copying")
            other = {"status": {"podName": vm["status"]["migration"]["targetPod"]}}
            await made.kube.patch(VMS, "db", other, made.space, part="status")
            told = await made.moved("db")
            assert told["phase"] == "Failed"
            assert told["reason"] == "the source pod is not the VM's any more"
            await moves.stop()
            for mirror in (*mirrors, there):
                await mirror.stop()

    run(body)


def test_a_target_that_is_anothers_pod_is_not_taken(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name) as made:
            await made.vm("db")
            vm = await made.kube.get(VMS, "db", made.space)
            target = pod_name("db", vm["metadata"]["uid"], 1)
            containers = [{"name": "c", "image": "none"}]
            body = {"metadata": {"name": target}, "spec": {"containers": containers}}
            await made.kube.create(PODS, body, made.space)
            await made.ask("db")
            told = await made.moved("db")
            assert (told["phase"], told["reason"]) == ("Failed", f"pod {target} belongs to others")
            await made.alone("db")
            # And it is left in peace.
            found = await made.kube.get(PODS, target, made.space)
            assert "deletionTimestamp" not in found["metadata"]

    run(body)


def test_a_finalizer_of_others_does_not_hold_a_migration_up(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with rig(cluster, name) as made:
            await made.vm("db")
            first = made.pods_of("db")[0]["metadata"]
            kept = {"metadata": {"finalizers": [*first["finalizers"], "test.example/mine"]}}
            await made.kube.patch(PODS, first["name"], kept, made.space)
            await made.ask("db")
            assert (await made.moved("db"))["phase"] == "Succeeded"
            left = await made.kube.get(PODS, first["name"], made.space)
            assert left["metadata"]["finalizers"] == ["test.example/mine"]
            free = {"metadata": {"finalizers": None}}
            await made.kube.patch(PODS, first["name"], free, made.space)
            await made.alone("db")

    run(body)


def test_a_marked_vm_waits_for_its_node_and_says_so(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, migrate=False) as made:
            source = await made.vm("db")
            there = Mirror(made.kube, NODES)  # not followed: KWOK would have it ready at once
            for node in made.nodes:
                there.objects["", node] = await made.kube.get(NODES, node)
            ready = there.objects["", source]
            lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
            there.objects["", source] = ready | lost
            moves, mirrors = await migrations(made.kube, made, there)
            await made.ask("db")
            vm = await made.until("db", lambda vm: moving(vm) == "Waiting")
            said = vm["status"]["migration"]["reason"]
            assert said == f"node {source} of the source is not ready"
            assert moves.under_way == []
            there.objects["", source] = ready
            there._tell(ready | lost, ready)
            told = await made.moved("db")
            assert (told["phase"], told["number"]) == ("Succeeded", 1)
            await moves.stop()
            for mirror in mirrors:
                await mirror.stop()

    run(body)


def test_a_migration_outlasts_a_restart_of_the_api_server(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = cluster_in(tmp_path / "c")
        await cluster.up(Setup(pools=(), parts=(ETCD, API, SCHEDULER, KWOK)), attached=True)
        try:
            slow = msgspec.structs.replace(QUICK, speed=3.0)  # the copy takes 2.5 s
            async with rig(cluster, "restart", slow) as made:
                await made.vm("db")
                await made.ask("db")
                await made.until("db", lambda vm: moving(vm) == "Copying")
                await cluster.stop_part(API, crash=True)
                await cluster.start_part(API, attached=True)
                told = await made.moved("db")
                assert told["phase"] == "Succeeded", told
                own = await made.alone("db")
                assert own["spec"]["nodeName"] == told["targetNode"]
        finally:
            await cluster.down()

    run(body)


def moving(vm: Object) -> str:
    """Return the phase of a VM's migration."""
    return str((vm["status"].get("migration") or {}).get("phase"))
