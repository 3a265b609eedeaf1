"""A scenario and feedback given to the exporter, with a controller that acts upon them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from roost.kube.base.client import PODS, Kube
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings
from roost.kube.metering.app import serving
from roost.kube.metering.exporter import Exporter
from roost.kube.moving.migrating import MigrationSettings
from roost.kube.vms.vmlist import cleanup_all
from tests.kube.clusters import LIMIT_S, namespace, nodes, pool, run


@asynccontextmanager
async def controlled(kube: Kube, space: str) -> AsyncIterator[None]:
    """Run a controller; at the end all VMs of the namespace go."""
    quick = ControllerSettings(lease=None, migration=MigrationSettings(speed=1000.0))
    controller = Controller(kube, space, settings=quick)
    await controller.start()
    try:
        await controller.until_leading()
        yield
        await cleanup_all(kube, space)
    finally:
        await controller.stop()


@asynccontextmanager
async def exported(
    cluster: LocalCluster, name: str
) -> AsyncIterator[tuple[Kube, str, list[str], httpx.AsyncClient]]:
    """Yield a session, a namespace whose VMs are kept, three nodes, and an exporter's client."""
    async with (
        await cluster.connect() as kube,
        namespace(kube, name) as space,
        nodes(kube, pool(name, 3)) as there,
        controlled(kube, space),
        serving(Exporter(kube, space)) as running,
        httpx.AsyncClient(base_url=running.url, timeout=LIMIT_S) as client,
    ):
        yield kube, space, there, client


def scenario(marked: str, **vms: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario for the nodes of one test."""
    usual = {"cpu": 4, "memory": "8GiB", "node_labels": {"test": marked}}
    return {"about": "a test", "vms": [usual | {"name": n} | more for n, more in vms.items()]}


def test_a_scenario_is_loaded_and_told_with_where_each_vm_went(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with exported(cluster, name) as (kube, space, there, client):
            document = scenario(name, web={"count": 3}, big={"memory": "900GiB"})
            answer = await client.post(f"/scenario?wait_s={LIMIT_S}", json=document)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert (told["created"], told["missing"]) == (4, [])
            assert "Insufficient memory" in told["pending"]["big"]
            pods = (await kube.list(PODS, space)).items
            bound = {
                pod["metadata"]["labels"]["vm.kubevirt.io/name"]: pod["spec"].get("nodeName")
                for pod in pods
            }
            assert told["placed"] == {vm: at for vm, at in bound.items() if at}
            assert set(told["placed"].values()) <= set(there)
            # The same again changes nothing; another takes away what it does not name.
            told = (await client.post(f"/scenario?wait_s={LIMIT_S}", json=document)).json()
            assert (told["created"], told["updated"], told["deleted"]) == (0, 0, 0)
            document = scenario(name, web={"count": 2})
            told = (await client.post(f"/scenario?wait_s={LIMIT_S}", json=document)).json()
            assert (told["deleted"], sorted(told["placed"])) == (2, ["web-1", "web-2"])
            assert (await client.get("/scenario")).json() == told

    run(body)


def test_feedback_tells_what_was_wanted_and_what_the_scheduler_chose(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with exported(cluster, name) as (_, _, there, client):
            wait = f"wait_s={LIMIT_S}"
            document = scenario(name, web={})
            answer = await client.post(f"/scenario?{wait}", json=document)
            source = answer.json()["placed"]["web"]
            wanted = next(node for node in there if node != source)
            move = {"vm_id": "web", "from_node": source, "to_node": wanted}
            answer = await client.post(f"/feedback?{wait}", json={"migrations": [move]})
            [result] = answer.json()["results"]
            assert result["accepted"], result
            assert result["wanted"] == wanted
            # The scheduler's choice: any node but the one it left.
            assert result["chosen"] in set(there) - {source}

    run(body)
