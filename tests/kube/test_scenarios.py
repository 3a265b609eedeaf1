"""Scenarios on a real cluster: VMs are placed, moved and left waiting by the real scheduler."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from roost.base.clock import RealClock
from roost.base.errors import Conflict
from roost.kube.base.client import NAMESPACES, NODES, PODS, WEBHOOKS, Kube
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.parts import API, Setup
from roost.kube.scenarios.reports import Report
from roost.kube.scenarios.runner import Cluster, run
from roost.kube.script.scenario import find_scenario, parse_scenario, read_scenario
from tests.kube.clusters import cluster_in, pool
from tests.kube.clusters import nodes as made_nodes
from tests.kube.clusters import run as bounded
from tests.kube.late import tell_late
from tests.kube.moving import BOTH


def ran(cluster: LocalCluster, text: str, name: str, said: list[str] | None = None) -> Report:
    """Run a scenario, shipped or written, on the shared cluster; nothing may be left of it."""
    scenario = parse_scenario(text, name) if "\n" in text else read_scenario(find_scenario(text))

    async def body() -> Report:
        say = (said if said is not None else []).append
        async with await cluster.connect() as kube:
            there = Cluster(kube, cluster.kubeconfig, cluster)
            report = await run(scenario, there, name=name, clock=RealClock(), say=say)
            await nothing_left(kube, report.namespace, scenario.node_names)
        return report

    return bounded(body)


async def nothing_left(kube: Kube, namespace: str, names: list[str]) -> None:
    assert not (await kube.list(PODS, namespace)).items
    there = {node["metadata"]["name"] for node in (await kube.list(NODES)).items}
    assert not there & set(names)
    hooks = [hook["metadata"]["name"] for hook in (await kube.list(WEBHOOKS)).items]
    assert not [hook for hook in hooks if namespace in hook]
    spaces = (await kube.list(NAMESPACES)).items
    kept = [space for space in spaces if space["metadata"]["name"] == namespace]
    assert all(space["metadata"].get("deletionTimestamp") for space in kept)


def test_the_scheduler_places_every_vm(cluster: LocalCluster, name: str) -> None:
    report = ran(cluster, "initial-placement", name)
    assert report.met, report.judgements
    assert {place.phase for place in report.vms} == {"Running"}
    assert sum(node.vms for node in report.nodes) == 10
    assert report.version.startswith("v1.")
    # Half of the memory at most is asked for by one VM, so no node is over its own.
    assert all(0 < node.memory_asked <= 1 for node in report.nodes)


def test_a_vm_goes_elsewhere_when_the_wanted_node_is_full(cluster: LocalCluster, name: str) -> None:
    report = ran(cluster, "migration-elsewhere", name)
    assert report.met, report.judgements
    (move,) = report.moves
    assert (move.vm, move.source, move.wanted, move.actual) == (
        "vm-5", "sim-node-1", "sim-node-2", "sim-node-3",
    )  # fmt: skip
    assert move.cause == "request"
    assert move.rounds >= 1
    assert move.copied_bytes > 10 * 2**30
    assert 0 < move.downtime_ms <= 300


def test_a_migration_that_is_the_last_step_is_waited_for(
    cluster: LocalCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody has heard of the mark yet when the last step is done.
    tell_late(monkeypatch, 0.5)
    report = ran(cluster, BOTH, name)
    assert report.met, report.judgements
    assert [(move.vm, move.cause) for move in report.moves] == [("a", "request"), ("b", "eviction")]


def test_what_finds_no_room_waits_with_the_reason(cluster: LocalCluster, name: str) -> None:
    report = ran(cluster, "resource-exhaustion", name)
    assert report.met, report.judgements
    assert len(report.vms) == 11
    assert len(report.pending) == 5
    assert all("Insufficient memory" in place.reason for place in report.pending)
    assert [node.vms for node in report.nodes] == [2, 2, 2]


LOST = """
about: The node of a VM dies; it starts again on the other one.
nodes: [{count: 2, cpu: 8, memory: 32GiB, name: lost-node}]
vms: [{name: a, memory: 8GiB, cpu_utilization: 0.9}]
steps:
  - {at: 0.2s, do: kill, node: hottest}
expect: {pending: 0, moves_at_most: 0}
"""


def test_a_vm_whose_node_dies_starts_elsewhere(cluster: LocalCluster, name: str) -> None:
    report = ran(cluster, LOST, name)
    assert report.met, report.judgements
    (place,) = report.vms
    assert {place.first, place.node} == {"lost-node-1", "lost-node-2"}
    assert place.phase == "Running"
    assert [node.name for node in report.nodes] == [place.node]


STEPS = """
about: Steps of every kind, one of which cannot be done, and expectations that are not met.
nodes: [{count: 3, cpu: 8, memory: 32GiB, name: step-node}]
vms:
  - {name: a, cpu: 4, memory: 8GiB, node: step-node-1}
  - {name: b, memory: 8GiB, node: step-node-2}
steps:
  - {at: 0s, do: cordon, node: step-node-3}
  - {at: 0s, do: load, on: a, to: {cpu: 1}, for: 3s}
  - {at: 0.1s, do: evict, on: b}
  - {at: 0.5s, do: kill, node: step-node-3}
  - {at: 0.6s, do: cordon, node: step-node-3}
  - {at: 1s, do: create, vms: [{name: c, node: step-node-2}]}
duration: 4s
migration: {speed: 50}
expect: {pending: 1, moves_at_least: 2}
"""


def test_an_expectation_that_is_not_met_is_told(cluster: LocalCluster, name: str) -> None:
    said: list[str] = []
    report = ran(cluster, STEPS, name, said)
    wrong = {each.expected: each.found for each in report.judgements if not each.met}
    assert wrong == {"pending: 1": "0", "moves: at least 2": "1"}
    assert not report.met
    # The third node took nobody, so b could only go to the first.
    assert {place.vm: place.node for place in report.vms} == {
        "a": "step-node-1", "b": "step-node-1", "c": "step-node-2",
    }  # fmt: skip
    assert (report.evictions.asked, report.evictions.converted) == (1, 1)
    assert any("kill step-node-3" in line for line in said)
    assert report.notes == ["0.6 s: there is no node 'step-node-3'"]
    busy = [sample.highest for sample in report.samples]
    assert max(busy) >= 0.5 > busy[-1]  # the load was laid on, and taken off again


def test_nodes_of_others_are_never_taken(cluster: LocalCluster, name: str) -> None:
    scenario = parse_scenario(
        f"about: x\nnodes: [{{count: 1, name: {name[:20]}}}]\nvms: [{{name: a}}]", name
    )

    async def body() -> None:
        async with await cluster.connect() as kube:
            theirs = msgspec.structs.replace(pool(name, 1), name=name[:20])
            async with made_nodes(kube, theirs) as (node,):
                with pytest.raises(Conflict, match=f"there is a node {node} already"):
                    await run(scenario, Cluster(kube, cluster.kubeconfig, cluster), name=name)
                found = await kube.get(NODES, node)
                assert found["metadata"]["labels"]["test"] == name

    bounded(body)


def test_the_command_answers_with_a_report(cluster: LocalCluster, tmp_path: Path) -> None:
    """All by the command: on the cluster of a kubeconfig, as JSON, ending with 1."""
    path = tmp_path / "small.yaml"
    path.write_text(
        "about: Small.\nnodes: [{count: 2, name: small-node}]\n"
        "vms: [{name: a, count: 3, memory: 1GiB}]\nexpect: {pending: 2}\n"
    )
    roost = str(Path(sys.executable).with_name("roost"))
    done = subprocess.run(
        [roost, "kube", "scenario", "run", str(path), "-o", "json", "--seed", "3",
         "--kubeconfig", str(cluster.kubeconfig)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = msgspec.json.decode(done.stdout)
    assert (report["scenario"], report["seed"], report["met"]) == ("small", 3, False)
    assert len(report["vms"]) == 3
    assert all(vm["node"].startswith("small-node-") for vm in report["vms"])
    assert "creating 3 VMs" in done.stderr


def test_real_nodes_are_left_alone_unless_they_are_meant(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = cluster_in(tmp_path / "c")
        await cluster.up(Setup(pools=(), parts=("etcd", API)), attached=True)
        try:
            async with await cluster.connect() as kube:
                await kube.create(NODES, {"metadata": {"name": "real"}})
                scenario = read_scenario(find_scenario("light"))
                with pytest.raises(Conflict, match="real ones"):
                    await run(scenario, Cluster(kube, cluster.kubeconfig, None), name="light")
                spaces = [each["metadata"]["name"] for each in (await kube.list(NAMESPACES)).items]
                assert not [space for space in spaces if space.startswith("scenario-")]
        finally:
            await cluster.down()

    bounded(body)
