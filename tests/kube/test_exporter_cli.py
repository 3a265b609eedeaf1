"""`roost kube exporter` as a program: on a cluster, and without one."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from roost.kube.cluster.local import LocalCluster
from tests.kube.clusters import LIMIT_S, run

DEAD = (
    "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}],"
    " contexts: [{name: c, context: {cluster: c, user: u}}],"
    " clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}"
)


async def started(kubeconfig: Path, *more: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "roost.cli.main", "kube", "exporter", "--listen", "127.0.0.1:0",
        "--kubeconfig", str(kubeconfig), "-o", "json", *more,
        stdout=PIPE, stderr=PIPE, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip


@asynccontextmanager
async def exporter(kubeconfig: Path, *more: str) -> AsyncIterator[tuple[Process, dict[str, Any]]]:
    """Run the program until the block ends; give what its first line says."""
    process = await started(kubeconfig, *more)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            line = await process.stdout.readline()
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def health_of(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
        return dict((await client.get("/health")).json())


def test_it_shows_a_cluster_and_ends_at_a_signal(cluster: LocalCluster) -> None:
    async def body() -> None:
        async with exporter(cluster.kubeconfig, "--require-kubernetes") as (process, told):
            assert told["source"] == "kubernetes"
            health = await health_of(told["url"])
            assert (health["status"], health["namespace"]) == ("ok", "")
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LIMIT_S):
                _, said = await process.communicate()
            assert process.returncode == 0, said.decode()

    run(body)


def test_without_a_cluster_it_falls_back_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        config = tmp_path / "config"
        config.write_text(DEAD)
        async with exporter(config) as (process, told):
            assert told["source"] == "own-fleet"
            health = await health_of(told["url"])
            assert (health["source"], health["nodes"]) == ("own-fleet", 5)
            assert "127.0.0.1:1 does not answer" in health["why"]
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(LIMIT_S):
                _, said = await process.communicate()
            assert b"not Kubernetes" in said
            assert process.returncode == 0, said.decode()

    run(body)


def test_a_cluster_that_is_required_and_away_is_an_error(tmp_path: Path) -> None:
    async def body() -> None:
        config = tmp_path / "config"
        config.write_text(DEAD)
        process = await started(config, "--require-kubernetes")
        async with asyncio.timeout(LIMIT_S):
            answer, _ = await process.communicate()
        assert process.returncode == 5
        assert json.loads(answer)["error"]["code"] == "unavailable"

    run(body)
