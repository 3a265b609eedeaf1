"""`roost kube vm` and `roost kube controller` as a user types them, against a real cluster."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from roost.base.clock import RealClock
from roost.cli.kube import vm
from roost.cli.main import app
from roost.kube.base.client import VMS
from roost.kube.base.mirror import Mirror
from roost.kube.cluster import processes
from roost.kube.cluster.local import LocalCluster
from roost.kube.vms.vmlist import create_vm
from tests.kube.clusters import LIMIT_S, namespace, nodes, pool, run
from tests.kube.keeping import space

FILE = """
- {name: web, count: 2, cpu: 2, memory: 1GiB, node_labels: {test: MARK}, groups: [web spread host]}
- {name: huge, cpu: 2, memory: 9TiB, node_labels: {test: MARK}}
"""


def roost(cluster: LocalCluster, *words: str, code: int = 0) -> str:
    """Run a command and return what it wrote."""
    return ran(cluster, *words, code=code).stdout


def ran(cluster: LocalCluster, *words: str, code: int = 0, answer: str = "") -> Result:
    """Run a command, with an answer to its question."""
    asked = ["kube", "vm", *words, "--kubeconfig", str(cluster.kubeconfig)]
    done = CliRunner().invoke(app, asked, input=answer, env={"COLUMNS": "200"})
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_a_user_sees_vms_come_and_go(cluster: LocalCluster, name: str, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "roost.cli.main", "kube", "controller", "--namespace", name,
        "--no-webhook", "--no-migrate", "--kubeconfig", str(cluster.kubeconfig),
    ]  # fmt: skip
    log = tmp_path / "log"

    async def body() -> None:
        async with (
            await cluster.connect() as kube,
            namespace(kube, name),
            nodes(kube, pool(name, 2)),
        ):
            process = processes.start("controller", command, log, attached=True)
            try:
                await asyncio.to_thread(commands)
            finally:
                await processes.end([process], RealClock())

    def commands() -> None:
        at = ("-n", name)
        asked = ("--cpu", "2", "--memory", "1GiB", "--label", f"test={name}")
        assert "Running" in roost(cluster, "create", "one", *asked, *at, "--wait")
        roost(cluster, "create", "one", *asked, "--node", "elsewhere", *at, code=4)
        shown = json.loads(roost(cluster, "show", "one", *at, "-o", "json"))
        assert shown["status"]["phase"] == "Running"
        assert "replicas" not in shown["spec"] | shown["status"]
        listed = tmp_path / "vms.yaml"
        listed.write_text(FILE.replace("MARK", name))
        assert "3 created" in roost(cluster, "sync", str(listed), *at)
        run(all_decided)
        assert "3 as they were" in roost(cluster, "sync", str(listed), *at)
        found = json.loads(roost(cluster, "stats", *at, "-o", "json"))
        assert (len(found["scheduled"]), len(found["pending"]), found["missing"]) == (3, 1, [])
        assert "Insufficient memory" in roost(cluster, "stats", *at)
        assert "Insufficient memory" in roost(cluster, "list", *at)
        assert "3 VMs checked, 0 rules" in roost(cluster, "check", *at)
        # Seen from nodes of another kind all of them stand wrong, and that is an exit code.
        wrong = json.loads(
            roost(cluster, "check", *at, "--node-selector", "no=such", "-o", "json", code=1)
        )
        assert {each["rule"] for each in wrong["violations"]} == {"node"}
        roost(cluster, "delete", "nobody", *at, code=3)
        roost(cluster, "delete", *at, code=2)
        roost(cluster, "delete", "--all", *at, code=2)  # there is nobody to ask
        assert "4 deleted" in roost(cluster, "delete", "--all", "--yes", *at)
        assert json.loads(roost(cluster, "list", *at, "-o", "json")) == {"vms": []}

    async def all_decided() -> None:
        async with await cluster.connect() as kube:
            vms = await Mirror(kube, VMS, name).start()

            def decided() -> bool:
                told = [item.get("status") or {} for item in vms]
                return all(each.get("phase") == "Running" or each.get("reason") for each in told)

            await vms.until(decided, LIMIT_S)
            await vms.stop()

    run(body)
    said = log.read_text()
    assert f"VM {name}/one is Running on {name}-node-" in said
    assert "stopping" in said
    assert "Traceback" not in said


def test_all_vms_go_only_when_that_is_meant(
    cluster: LocalCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with space(cluster, name, 1, settings=None) as there:
            for vm in ("one", "two"):
                await create_vm(there.kube, there.vm(vm))
            await asyncio.to_thread(commands)
            assert (await there.kube.list(VMS, name)).items == []

    def commands() -> None:
        asked = ("delete", "--all", "-n", name)
        refused = json.loads(roost(cluster, *asked, "-o", "json", code=2))
        assert refused["error"]["hint"] == "Maybe --yes, if that is meant."
        monkeypatch.setattr(vm, "_has_terminal", lambda: True)
        for answer in ("n\n", "\n"):
            done = ran(cluster, *asked, answer=answer, code=1)
            assert f"Delete every VM of namespace {name} on https://127.0.0.1:" in done.stderr
            assert "(2 now)? [y/N]:" in done.stderr
            assert "deleted" not in done.stdout
        assert len(json.loads(roost(cluster, "list", "-n", name, "-o", "json"))["vms"]) == 2
        assert "2 deleted: one, two" in ran(cluster, *asked, answer="y\n").stdout

    run(body)
