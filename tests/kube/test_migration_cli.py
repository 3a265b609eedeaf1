"""`roost kube vm migrate` says where a VM went and why not; `migrations` lists what was."""

import asyncio
import json

from typer.testing import CliRunner, Result

from roost.cli.main import app
from roost.kube.cluster.local import LocalCluster
from tests.kube.clusters import run
from tests.kube.moving import rig


def test_a_vm_is_moved_and_listed_by_command(cluster: LocalCluster, name: str) -> None:
    async def roost(*words: str) -> Result:
        asked = ["kube", "vm", *words, "-n", name, "--kubeconfig", str(cluster.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, app, asked)

    async def body() -> None:
        async with rig(cluster, name) as made:
            source = await made.vm("db")
            wanted = next(node for node in made.nodes if node != source)
            told = await roost("migrate", "db", "--wanted", source)
            assert told.exit_code == 2, told.output
            assert "is on" in told.stderr
            assert (await roost("migrate", "db", "--force-node", "nowhere")).exit_code == 3
            both = await roost("migrate", "db", "--wanted", wanted, "--force-node", wanted)
            assert both.exit_code == 2
            told = await roost("migrate", "db", "--wanted", wanted, "--wait")
            assert told.exit_code == 0, told.output
            moved = await made.moved("db")
            assert (
                f"db moved from {source} to {moved['targetNode']}: wanted {wanted}" in told.stdout
            )
            assert f"copying to {moved['targetNode']}" in told.stderr
            told = await roost("migrate", "db", "--force-node", source, "--wait", "-o", "json")
            document = json.loads(told.stdout)
            assert (document["phase"], document["targetNode"]) == ("Succeeded", source)
            # One that cannot move says why, and fails.
            await made.vm("busy", dirty_rate_mbps=12_000)
            told = await roost("migrate", "busy", "--wait")
            assert told.exit_code == 5, told.output
            assert "cannot converge" in told.stderr
            listed = json.loads((await roost("migrations", "-o", "json")).stdout)["migrations"]
            ends = [(each["vm"], each["number"], each["phase"]) for each in listed]
            assert ends == [("db", 1, "Succeeded"), ("db", 2, "Succeeded"), ("busy", 1, "Failed")]
            table = await roost("migrations", "db")
            assert "(forced)" in table.stdout
            assert "busy" not in table.stdout
            assert (await roost("migrations", "nobody")).exit_code == 3

    run(body)


def test_without_a_controller_nothing_is_claimed(cluster: LocalCluster, name: str) -> None:
    async def roost(*words: str) -> Result:
        asked = ["kube", "vm", *words, "-n", name, "--kubeconfig", str(cluster.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, app, asked)

    async def body() -> None:
        async with rig(cluster, name, migrate=False) as made:
            source = await made.vm("db")
            told = await roost("migrate", "db", "--wait", "--wait-s", "1")
            assert told.exit_code == 5
            assert "Maybe no controller runs" in told.stderr
            again = await roost("migrate", "db")
            assert again.exit_code == 4
            assert f"db is to leave {source} already" in again.stderr

    run(body)
