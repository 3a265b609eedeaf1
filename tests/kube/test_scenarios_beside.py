"""Scenarios on a cluster on which a controller of all namespaces runs, or has run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from roost.base.clock import RealClock
from roost.kube.base.client import LEASES, WEBHOOKS, Kube
from roost.kube.base.lease import HOME, LeaseSettings, lease_name
from roost.kube.base.moments import moment_text
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings
from roost.kube.moving.webhook import CONFIGURATION, Webhook
from roost.kube.scenarios.reports import Report
from roost.kube.scenarios.runner import Cluster, Run, run
from roost.kube.script.scenario import parse_scenario
from tests.kube.clusters import run as bounded
from tests.kube.moving import BOTH, QUICK

MOVES = [("a", "request"), ("b", "eviction")]
USED = (
    "the controller that runs on this cluster was used: migrations went by its settings, not by "
    "the scenario's"
)


@asynccontextmanager
async def controller(kube: Kube, *, keep: bool = False) -> AsyncIterator[Webhook]:
    """Run a controller of all namespaces, as the command does; yield its webhook."""
    door = Webhook(kube, keep=keep)
    settings = ControllerSettings(migration=QUICK, lease=LeaseSettings())
    acts = Controller(kube, settings=settings, beside=[door])
    await acts.start()
    try:
        await acts.until_leading()
        yield door
    finally:
        await acts.stop()


async def ran(kube: Kube, cluster: LocalCluster, name: str) -> Report:
    there = Cluster(kube, cluster.kubeconfig, cluster)
    return await run(parse_scenario(BOTH, name), there, name=name)


def test_a_controller_that_runs_is_used_and_that_is_told(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with await cluster.connect() as kube:
            async with controller(kube) as door:
                report = await ran(kube, cluster, name)
            assert report.notes == [USED]
            assert [(move.vm, move.cause) for move in report.moves] == MOVES
            assert report.met, report.judgements
            assert door.told["marked"] == 1
            # One that has ended is not waited for: the scenario has its own again.
            report = await ran(kube, cluster, name)
            assert (report.notes, report.met) == ([], True), report

    bounded(body)


def test_a_webhook_that_an_ended_controller_left_is_not_in_the_way(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with await cluster.connect() as kube:
            try:
                async with controller(kube, keep=True):
                    pass
                report = await ran(kube, cluster, name)
                # It is still there: the VMs of that controller stay protected.
                assert await kube.get(WEBHOOKS, CONFIGURATION)
            finally:
                await kube.delete(WEBHOOKS, CONFIGURATION)
            assert report.notes == []
            assert [(move.vm, move.cause) for move in report.moves] == MOVES
            assert (report.evictions.asked, report.evictions.converted) == (1, 1)
            assert report.met, report.judgements

    bounded(body)


@pytest.mark.parametrize(
    ("of_all", "holder", "age_s", "runs"),
    [
        (True, "someone", 5, True),
        (False, "someone", 5, True),
        (True, "", 5, False),
        (True, "someone", 90, False),
    ],
    ids=["of-all", "of-this-namespace", "given-back", "silent-for-long"],
)
def test_whether_a_controller_runs_is_told_by_its_lease(
    cluster: LocalCluster, name: str, of_all: bool, holder: str, age_s: int, runs: bool
) -> None:
    async def body() -> None:
        async with await cluster.connect() as kube:
            report = Report(
                scenario=name, about="", seed=0, own_cluster=False, server="", namespace=name
            )
            there = Cluster(kube, cluster.kubeconfig, cluster)
            scenario = parse_scenario(BOTH, name)
            made = Run(scenario, there, report, RealClock(), lambda _: None)
            lease = lease_name(None if of_all else name)
            await kube.delete(LEASES, lease, HOME)
            renewed = moment_text(RealClock().wall_ms() - age_s * 1000, micro=True)
            spec = {
                "holderIdentity": holder or None, "renewTime": renewed, "leaseDurationSeconds": 15,
            }  # fmt: skip
            await kube.create(LEASES, {"metadata": {"name": lease}, "spec": spec}, HOME)
            try:
                assert await made._is_controlled() is runs
            finally:
                await kube.delete(LEASES, lease, HOME)
            assert not await made._is_controlled()

    bounded(body)
