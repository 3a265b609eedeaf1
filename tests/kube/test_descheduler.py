"""The real descheduler and a real Prometheus: heat is chased, and cool-down ends the chase."""

import os

import pytest

from roost.base.clock import RealClock
from roost.base.errors import Unavailable
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.tools import tool
from roost.kube.scenarios.prometheus import find_prometheus
from roost.kube.scenarios.reports import Report
from roost.kube.scenarios.runner import Cluster, run
from roost.kube.script.scenario import parse_scenario
from tests.kube.clusters import run as bounded

#: One VM that is hot wherever it is, and two nodes: it would be sent back and forth for ever.
CHASE = """
about: Load follows the hottest of two nodes.
duration: 9s
nodes: [{count: 2, cpu: 8, memory: 32GiB, name: chase-node}]
vms: [{name: vm, cpu: 4, memory: 2GiB, cpu_utilization: 0.1, dirty_rate_mbps: 100}]
generators:
  - {name: heat, every: 0.5s, on: {node: hottest}, to: {cpu: 0.9}, for: 1s}
descheduler: {every: 1s, under: 5, over: 5, per_node: 1, total: 1}
migration: {speed: 50, cool_down: COOL}
expect: {pending: 0, converted_at_least: 1, no_return_within: 8s}
"""


@pytest.fixture(autouse=True)
def parts() -> None:
    """Skip without the programs; in CI, where nothing may be missing, fail."""
    try:
        tool("descheduler")
        find_prometheus()
    except Unavailable as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{error.message}. {error.hint}")


def chased(cluster: LocalCluster, name: str, cool_down: str) -> Report:
    scenario = parse_scenario(CHASE.replace("COOL", cool_down), name)

    async def body() -> Report:
        async with await cluster.connect() as kube:
            there = Cluster(kube, cluster.kubeconfig, cluster)
            return await run(scenario, there, name=name, clock=RealClock())

    return bounded(body)


def test_with_cool_down_nobody_is_sent_back_and_forth(cluster: LocalCluster, name: str) -> None:
    report = chased(cluster, name, "60s")
    assert report.met, (report.judgements, report.notes)
    (move,) = report.moves
    assert (move.cause, move.phase) == ("eviction", "Succeeded")
    assert report.evictions.converted == 1
    # The chase went on: the VM was asked for again and again, and stayed.
    assert report.evictions.refused >= 1
    assert report.descheduler_rounds >= 3


def test_without_cool_down_the_same_chase_is_ping_pong(cluster: LocalCluster, name: str) -> None:
    """What the test above would look like if cool-down did nothing."""
    report = chased(cluster, name, "0s")
    assert not report.met
    assert len(report.succeeded) >= 2
    assert report.returns
    (broken,) = [each for each in report.judgements if not each.met]
    assert broken.expected == "no VM returns within 8 s"
