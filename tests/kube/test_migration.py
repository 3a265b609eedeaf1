"""VMs move on a real cluster: the scheduler chooses, both pods are there, none is ever missing."""

import msgspec
import pytest

from roost.kube.base.client import BUDGETS, EVENTS, NODES, VMS, TooManyRequests
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import (
    EVICTION_IN_PROGRESS_ANNOTATION,
    MEMORY_UTILIZATION_ANNOTATION,
    NAME_LABEL,
)
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from tests.kube.clusters import LIMIT_S, run
from tests.kube.moving import GIB, QUICK, Rig, rig


async def events(made: Rig, vm: str) -> list[tuple[str, str]]:
    """Return reason and message of the events of a VM, once there is one."""
    mirror = await Mirror(made.kube, EVENTS, made.space).start()

    def found() -> list[tuple[str, str]]:
        return [(e["reason"], e["message"]) for e in mirror if e["involvedObject"]["name"] == vm]

    try:
        return await mirror.until(lambda: found() or None, LIMIT_S)
    finally:
        await mirror.stop()


def under_way(made: Rig) -> list[str]:
    """Return the VMs that move now."""
    phases = ("Scheduling", "Copying", "Handover")
    return [
        vm["metadata"]["name"]
        for vm in made.vms
        if ((vm.get("status") or {}).get("migration") or {}).get("phase") in phases
    ]


def test_an_evicted_vm_moves_and_is_never_without_a_pod(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, webhook=True) as made:
            source = await made.vm("db")
            first = await made.pod_of("db")
            made.lives.clear()
            with pytest.raises(TooManyRequests) as refused:
                await made.evict("db")
            assert f'Eviction triggered evacuation of VMI "{made.space}/db"' in str(refused.value)
            told = await made.moved("db")
            assert (told["phase"], told["cause"]) == ("Succeeded", "eviction"), told
            assert told["sourceNode"] == source != told["targetNode"]
            own = await made.alone("db")
            assert own["metadata"]["name"] == told["targetPod"] != first
            assert own["spec"]["nodeName"] == told["targetNode"]
            # One runs at every moment, and for some time there are two.
            assert all(runs >= 1 for _, _, runs in made.lives), made.lives
            assert max(runs for _, _, runs in made.lives) == 2
            assert own["metadata"]["annotations"][MEMORY_UTILIZATION_ANNOTATION] == "1"
            assert told["copiedBytes"] >= 8 * GIB
            assert 0 < told["downtimeMs"] <= 300

    run(body)


def test_what_was_wanted_and_what_the_scheduler_chose_are_both_kept(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with rig(cluster, name) as made:
            source = await made.vm("db")
            others = [node for node in made.nodes if node != source]
            # The wanted node is closed, so the scheduler must choose the other.
            await made.kube.patch(NODES, others[0], {"spec": {"unschedulable": True}})
            await made.ask("db", wantedNode=others[0])
            told = await made.moved("db")
            assert told["phase"] == "Succeeded", told
            assert (told["wantedNode"], told["targetNode"]) == tuple(others)
            said = f"moved from {source} to {others[1]}: wanted {others[0]}, scheduler chose"
            assert await events(made, "db") == [("Migrated", f"{said} {others[1]}")]
            # By name it goes where no scheduler would put it.
            await made.ask("db", forcedNode=others[0])
            told = await made.moved("db", 2)
            assert (told["phase"], told["targetNode"]) == ("Succeeded", others[0])

    run(body)


def test_a_vm_that_fits_nowhere_else_stays_unharmed(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name, count=1, webhook=True) as made:
            source = await made.vm("db")
            first = await made.pod_of("db")
            with pytest.raises(TooManyRequests, match="triggered evacuation"):
                await made.evict("db")
            told = await made.moved("db")
            assert told["phase"] == "Failed"
            assert "didn't match Pod's node affinity/selector" in told["reason"]
            own = await made.alone("db")
            assert (own["metadata"]["name"], own["spec"]["nodeName"]) == (first, source)
            vm = await made.kube.get(VMS, "db", made.space)
            assert "evacuation" not in vm["status"]
            assert vm["status"]["phase"] == "Running"
            await made.pods.until(
                lambda: (
                    EVICTION_IN_PROGRESS_ANNOTATION
                    not in made.pods_of("db")[0]["metadata"]["annotations"]
                ),
                LIMIT_S,
            )
            assert [reason for reason, _ in await events(made, "db")] == ["MigrationFailed"]

    run(body)


def test_two_at_once_share_the_network(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        slower = msgspec.structs.replace(QUICK, speed=4.0)
        async with rig(cluster, name, slower) as made:
            home = made.nodes[0]
            for vm in ("one", "two"):
                await made.vm(vm, node=home)
            await made.ask("one")
            alone = await made.moved("one")
            # 8 GiB at 10 Gbit/s, while 800 Mbit/s are written anew: 6.87 s x (1 + 0.08 + ...)
            assert alone["copySeconds"] == pytest.approx(7.46, abs=0.1)
            await made.ask("one", forcedNode=home)
            await made.moved("one", 2)
            for vm in ("one", "two"):
                await made.ask(vm)
            both = [await made.moved("one", 3), await made.moved("two")]
            assert all(told["phase"] == "Succeeded" for told in both), both
            # They did not begin at the same moment, so less than twice as long.
            assert all(told["copySeconds"] > 1.3 * alone["copySeconds"] for told in both), both
            assert all(told["copiedBytes"] > alone["copiedBytes"] for told in both)

    run(body)


def test_a_vm_that_writes_too_much_is_left_where_it_is(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with rig(cluster, name) as made:
            source = await made.vm("busy", dirty_rate_mbps=12_000)
            first = await made.pod_of("busy")
            used: list[float] = []
            made.pods.listen(lambda _, after: note_use(used, after, first))
            await made.ask("busy")
            told = await made.moved("busy")
            assert told["phase"] == "Failed"
            assert told["reason"] == (
                "the copy cannot converge: the guest writes 12,000 Mbit/s and 10,000 Mbit/s "
                "can be sent"
            )
            own = await made.alone("busy")
            assert (own["metadata"]["name"], own["spec"]["nodeName"]) == (first, source)
            # While it lasted the target used more and more memory, beside the source.
            assert used == sorted(used)
            assert used[0] == 0.0

    def note_use(used: list[float], pod: Object | None, source: str) -> None:
        if pod is not None and pod["metadata"]["name"] != source:
            used.append(float(pod["metadata"]["annotations"][MEMORY_UTILIZATION_ANNOTATION]))

    run(body)


def test_a_disruption_budget_lets_one_move_at_a_time(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        slower = msgspec.structs.replace(QUICK, speed=30.0)
        async with rig(cluster, name, slower) as made:
            names = ["a", "b", "c"]
            for vm in names:
                await made.vm(vm)
            budget = {
                "metadata": {"name": "two-stay"},
                "spec": {
                    "minAvailable": 2,
                    "selector": {
                        "matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": names}]
                    },
                },
            }
            most: list[int] = []
            reasons: set[str] = set()

            def watch(_: Object | None, after: Object | None) -> None:
                most.append(len(under_way(made)))
                migration = ((after or {}).get("status") or {}).get("migration") or {}
                if migration.get("phase") == "Waiting":
                    reasons.add(migration.get("reason", ""))

            made.vms.listen(watch)
            await made.kube.create(BUDGETS, budget, made.space)
            for vm in names:
                await made.ask(vm)
            told = [await made.moved(vm) for vm in names]
            assert [each["phase"] for each in told] == ["Succeeded"] * 3
            assert max(most) == 1
            assert reasons
            assert all("disruption budget two-stay" in reason for reason in reasons), reasons

    run(body)


def test_only_so_many_leave_a_node_at_once(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        few = msgspec.structs.replace(QUICK, at_once=3, per_node=1)
        async with rig(cluster, name, few) as made:
            homes = [made.nodes[0]] * 2 + [made.nodes[1]] * 2
            for number, home in enumerate(homes):
                await made.vm(f"v{number}", node=home)
            most: list[list[str]] = []
            made.vms.listen(lambda *_: most.append(under_way(made)))
            for number in range(4):
                await made.ask(f"v{number}", requestedAt=f"2026-01-01T00:00:0{number}Z")
            told = [await made.moved(f"v{number}") for number in range(4)]
            assert [each["phase"] for each in told] == ["Succeeded"] * 4
            for moving in most:
                assert len([vm for vm in moving if vm in ("v0", "v1")]) <= 1, most
                assert len([vm for vm in moving if vm in ("v2", "v3")]) <= 1, most
            # First come, first served.
            assert told[0]["startedAt"] < told[1]["startedAt"]
            assert told[2]["startedAt"] < told[3]["startedAt"]

    run(body)
