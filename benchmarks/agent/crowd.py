"""Rows: a thousand virtual agents in one process, as `roost agent --count` runs them.

How long until all are online, what they and the server cost when nothing happens, and whether all
come back by themselves after the server was killed, none of them ever called silent.
"""

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.agent.agents import AgentProcess, agent, pass_time, wait_for
from benchmarks.agent.sizes import Sizes
from benchmarks.api.measuring import cpu_s, memory_mib
from benchmarks.api.serving import Serving, start
from benchmarks.api.verifying import Wrong, verify
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most
from roost.client.synchronous import Client

NAME = "many agents"
#: Ours: what a developer's machine can spare for a fleet to play with.
_GOAL_ONLINE_S, _AIM_ONLINE_S = 30.0, 10.0
_GOAL_MIB, _AIM_MIB = 300.0, 150.0
_GOAL_CPU, _AIM_CPU = 25.0, 10.0
_PATIENCE_S = 120.0
_SILENT = ("host.suspect", "host.offline")


def jobs(sizes: Sizes, folder: Path) -> Iterator[Job]:
    """Return the job of this topic."""
    yield Job(NAME, partial(_rows, sizes, folder / "crowd"))


@dataclass(slots=True)
class Measured:
    """What was seen of the agents' process and of the server."""

    online_s: float
    agents_mib: float
    agents_cpu: float
    server_cpu: float
    back_s: float
    ready_s: float
    silent: int


def _rows(sizes: Sizes, folder: Path) -> Iterator[Result]:
    _raise_open_files()
    database = f"sqlite:///{folder}/ledger.db"
    found = _measure(sizes, folder, database)
    verify(NAME, database, 0)
    crowd = f"{sizes.agents:,} agents in one process"
    heartbeat_s, suspect_s = sizes.timers
    yield at_most(
        f"{NAME}: until all are online",
        found.online_s,
        "s",
        sizes.goal(_GOAL_ONLINE_S),
        sizes.goal(_AIM_ONLINE_S),
        note=f"{crowd}, from its start, every one joined by a token of its own; goal is ours",
    )
    yield at_most(
        f"{NAME}: memory of their process",
        found.agents_mib,
        "MiB",
        sizes.goal(_GOAL_MIB),
        sizes.goal(_AIM_MIB),
        note=f"resident, {1024 * found.agents_mib / sizes.agents:.0f} KiB for each; goal is ours",
    )
    watched = f"idle, a heartbeat every {heartbeat_s:g} s, over {sizes.watched_s:.0f} s"
    yield at_most(
        f"{NAME}: CPU of their process",
        found.agents_cpu,
        "% of a core",
        sizes.goal(_GOAL_CPU),
        sizes.goal(_AIM_CPU),
        note=f"{watched}; goal is ours",
    )
    yield at_most(
        f"{NAME}: CPU of the server",
        found.server_cpu,
        "% of a core",
        sizes.goal(_GOAL_CPU),
        sizes.goal(_AIM_CPU),
        note=f"{watched}; goal is ours",
    )
    yield at_most(
        f"{NAME}: all back after kill -9 of the server",
        found.back_s,
        "s",
        None,
        note=f"ready again after {found.ready_s:.1f} s of it",
    )
    yield at_most(
        f"{NAME}: marked suspect or offline",
        float(found.silent),
        "hosts",
        0.0,
        note=f"in all, until {suspect_s + 2 * heartbeat_s:.0f} s after all were back",
    )


def _measure(sizes: Sizes, folder: Path, database: str) -> Measured:
    heartbeat_s, suspect_s = sizes.timers
    options = ["--heartbeat-s", str(heartbeat_s), "--suspect-s", str(suspect_s)]
    serving = start(database, folder, options)
    try:
        count = ("--count", str(sizes.agents), "--cpu", "16", "--memory", "64GiB")
        began = time.perf_counter()
        with agent(serving, "virtual", folder / "agents", count) as crowd:
            _wait_online(serving, crowd, sizes.agents)
            online_s = time.perf_counter() - began
            pass_time(2 * heartbeat_s)
            cpu = cpu_s(crowd.pid), cpu_s(serving.pid)
            began = time.perf_counter()
            pass_time(sizes.watched_s)
            wall = time.perf_counter() - began
            agents_cpu, server_cpu = cpu_s(crowd.pid) - cpu[0], cpu_s(serving.pid) - cpu[1]
            mib = memory_mib(crowd.pid)
            serving.kill()
            killed = time.perf_counter()
            serving = start(database, folder, options, port=serving.port)
            _wait_online(serving, crowd, sizes.agents)
            back_s = time.perf_counter() - killed
            # Until now nobody could be missed for long enough.
            pass_time(suspect_s + 2 * heartbeat_s)
            _wait_online(serving, crowd, sizes.agents)
            return Measured(
                online_s=online_s,
                agents_mib=mib,
                agents_cpu=100 * agents_cpu / wall,
                server_cpu=100 * server_cpu / wall,
                back_s=back_s,
                ready_s=serving.ready_s,
                silent=_silent(serving),
            )
    finally:
        serving.stop()


def _wait_online(serving: Serving, crowd: AgentProcess, count: int) -> None:
    """Wait until so many hosts are online and connected; there must never be more."""

    def all_there() -> bool:
        crowd.check()
        hosts = list(client.all_hosts())
        if len(hosts) > count:
            raise Wrong(f"{len(hosts)} hosts instead of {count}")
        return sum(host.health == "online" and host.connected for host in hosts) == count

    with Client(serving.url, serving.token) as client:
        wait_for(f"{count} hosts to be online", all_there, _PATIENCE_S, every_s=0.2)


def _silent(serving: Serving) -> int:
    """Return how often a host was called silent since the beginning."""
    silent, since = 0, 0
    with Client(serving.url, serving.token) as client:
        while (page := client.list_events(since=since, limit=1000)).events:
            silent += sum(event.kind in _SILENT for event in page.events)
            since = page.next
    return silent


def _raise_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
