"""A Prometheus of our own on loopback, that reads an exporter for as long as a run lasts.

It is the real program (`make parts` fetches Debian's package into the cache, without installing or
starting anything): what the descheduler asks is what it would ask in production.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from roost.base.clock import Clock
from roost.base.errors import Unavailable
from roost.kube.cluster import processes
from roost.kube.cluster.local import free_ports
from roost.kube.cluster.parts import LOOPBACK

READY_S = 30.0
_LOOK_S = 0.05


def find_prometheus() -> Path:
    """Return the program: ROOST_PROMETHEUS, the one of the PATH, or the one in the cache."""
    cache = Path(os.environ.get("ROOST_CACHE") or Path.home() / ".cache" / "roost")
    chosen = os.environ.get("ROOST_PROMETHEUS") or shutil.which("prometheus")
    path = Path(chosen) if chosen else cache / "prometheus" / "usr" / "bin" / "prometheus"
    if not os.access(path, os.X_OK):
        raise Unavailable(
            f"there is no Prometheus: neither in PATH nor as {path}",
            hint="Maybe `make parts` fetches it (Debian), or ROOST_PROMETHEUS names it.",
        )
    return path


class Prometheus:
    """A Prometheus process that runs."""

    def __init__(self, url: str, process: processes.Process) -> None:
        self.url, self.process = url, process

    async def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the samples of a query, as they are now."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.url}/api/v1/query", params={"query": query}) as answer,
            ):
                told = await answer.json()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"Prometheus at {self.url} does not answer: {error}") from error
        if told.get("status") != "success":
            raise Unavailable(f"Prometheus refuses {query!r}: {told.get('error', 'no reason')}")
        return list(told["data"]["result"])


def settings(targets: Sequence[str], every_s: float) -> dict[str, Any]:
    """Return the configuration: who is read, and how often.

    The exporter speaks for many nodes, so its own `instance` labels are kept.
    """
    every = f"{max(round(every_s * 1000), 100)}ms"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [
            {
                "job_name": "roost",
                "honor_labels": True,
                "static_configs": [{"targets": list(targets)}],
            }
        ],
    }


@asynccontextmanager
async def prometheus(
    folder: Path, targets: Sequence[str], clock: Clock, *, every_s: float = 1.0
) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that reads these targets, until the block ends."""
    program = find_prometheus()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(settings(targets, every_s), sort_keys=False))
    url = f"http://{LOOPBACK}:{free_ports('prometheus')['prometheus']}"
    command = [
        str(program), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}", "--log.level=warn",
        "--storage.tsdb.retention.time=1d",
    ]  # fmt: skip
    process = processes.start("prometheus", command, folder / "prometheus.log", attached=True)
    try:
        await _ready(url, process, clock)
        yield Prometheus(url, process)
    finally:
        await asyncio.shield(processes.end([process], clock))


async def _ready(url: str, process: processes.Process, clock: Clock) -> None:
    deadline = clock.monotonic() + READY_S
    async with aiohttp.ClientSession() as session:
        while True:
            if not process.is_alive:
                raise Unavailable(
                    f"Prometheus ended: {processes.tail(process)}",
                    hint=f"Maybe {process.log} tells more.",
                )
            try:
                async with session.get(f"{url}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, OSError):
                pass
            if clock.monotonic() > deadline:
                raise Unavailable(f"Prometheus is not ready after {READY_S:g} s")
            await clock.sleep(_LOOK_S)
