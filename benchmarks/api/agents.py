"""Rows: what thousands of connected agents cost one server, and what happens when it is killed.

Every agent has a credential, is registered and says a heartbeat every few seconds. After a while
the server is killed and started again on the same port: all agents must come back by themselves,
and none may be marked as silent. That is asked through the API once every timer has run out.
"""

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.api.agent_load import Orders, Status
from benchmarks.api.databases import Databases, seed_credentials, seed_hosts
from benchmarks.api.measuring import Sizes, cpu_s, memory_mib
from benchmarks.api.serving import REPOSITORY, Serving, start
from benchmarks.api.verifying import Wrong, verify
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most
from roost.client.synchronous import Client

_GOAL_CPU, _GOAL_MIB = 15.0, 400.0
_PATIENCE_S = 120.0
#: Files that a server or the agents' process has open besides connections.
_OTHER_FILES = 300
_SILENT = ("host.suspect", "host.offline")


def jobs(sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Job]:
    """Return the jobs of this topic on one kind of database."""
    name = f"agents, {databases.kind}"
    yield Job(name, partial(_agents, name, sizes, databases, folder / "agents"))


@dataclass(slots=True)
class Measured:
    """What was seen of one server, and of the one that took its place."""

    cpu_s: float
    wall_s: float
    beats: int
    agents_cpu_s: float
    mib: float
    back_s: float
    ready_s: float
    most_mib: float
    silent: int


def _agents(name: str, sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Result]:
    count = min(sizes.agents, _most_connections())
    database = databases.new()
    seed_hosts(database, count)
    credentials = seed_credentials(database, count)
    found = _measure(name, sizes, database, folder, credentials)
    verify(name, database, 0)
    crowd = f"{count:,} agents"
    if count < sizes.agents:
        crowd += f" (ulimit -n allows no {sizes.agents:,})"
    heartbeat_s, _, offline_s = sizes.timers
    yield at_most(
        f"{name}: CPU of the server",
        100 * found.cpu_s / found.wall_s,
        "% of a core",
        sizes.goal(_GOAL_CPU),
        note=f"{crowd}, every {heartbeat_s:g} s: {found.beats / found.wall_s:,.0f} heartbeats/s "
        f"over {found.wall_s:.0f} s; the agents' process "
        f"{100 * found.agents_cpu_s / found.wall_s:.0f}%",
    )
    yield at_most(
        f"{name}: memory of the server",
        found.mib,
        "MiB",
        sizes.goal(_GOAL_MIB),
        note=f"{crowd}; at most {found.most_mib:.0f} MiB after the restart",
    )
    yield at_most(
        f"{name}: all back after kill -9",
        found.back_s,
        "s",
        None,
        note=f"{crowd}; ready again after {found.ready_s:.1f} s of it",
    )
    yield at_most(
        f"{name}: marked suspect or offline",
        float(found.silent),
        "hosts",
        0.0,
        note=f"in all, until {offline_s + 2 * heartbeat_s:.0f} s after all were back",
    )


def _measure(
    name: str, sizes: Sizes, database: str, folder: Path, credentials: list[str]
) -> Measured:
    """Let the agents connect, watch the server, kill it, and see what becomes of them."""
    count = len(credentials)
    heartbeat_s, suspect_s, offline_s = sizes.timers
    options = ["--heartbeat-s", str(heartbeat_s), "--suspect-s", str(suspect_s)]
    options += ["--offline-s", str(offline_s), "--lease-s", str(offline_s)]
    serving = start(database, folder, options)
    with ExitStack() as stack:
        stack.callback(lambda: serving.stop())  # whichever runs then
        orders = Orders(serving.port, heartbeat_s, offline_s, credentials)
        crowd = Crowd(orders, folder / "orders.json")
        stack.callback(crowd.end)
        crowd.wait_for(lambda status: status.connected == count)
        _pass(2 * heartbeat_s)
        cpu, wall, before = cpu_s(serving.pid), time.perf_counter(), crowd.status()
        _pass(sizes.agents_watched_s)
        cpu, wall = cpu_s(serving.pid) - cpu, time.perf_counter() - wall
        after, mib = crowd.status(), memory_mib(serving.pid)
        _check_quiet(name, before, after, count)
        serving.kill()
        killed = time.perf_counter()
        serving = start(database, folder, options, port=serving.port)
        crowd.wait_for(lambda status: status.connected == count and status.losses >= count)
        back_s = time.perf_counter() - killed
        # Until now nobody could be missed for long enough.
        _pass(offline_s + 2 * heartbeat_s)
        return Measured(
            cpu_s=cpu,
            wall_s=wall,
            beats=after.beats - before.beats,
            agents_cpu_s=after.cpu_s - before.cpu_s,
            mib=mib,
            back_s=back_s,
            ready_s=serving.ready_s,
            most_mib=memory_mib(serving.pid, "VmHWM"),
            silent=_silent(serving, count),
        )


class Crowd:
    """The process of all agents, as seen from here."""

    def __init__(self, orders: Orders, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(orders))
        command = [sys.executable, "-m", "benchmarks.api.agent_load", str(path)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)
        self._last = Status()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = msgspec.json.decode(line, type=Status)

    def status(self) -> Status:
        """Return what the agents said last."""
        if self._process.poll() is not None:
            raise Wrong(f"the agents' process ended with {self._process.returncode}")
        return self._last

    def wait_for(self, condition: Callable[[Status], bool]) -> None:
        """Wait until the agents are as they should be."""
        began = time.perf_counter()
        while not condition(self.status()):
            if time.perf_counter() - began > _PATIENCE_S:
                raise Wrong(f"agents after {_PATIENCE_S:.0f} s: {self.status()}")
            _pass(0.05)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _pass(seconds: float) -> None:
    """Let time pass."""
    threading.Event().wait(seconds)


def _most_connections() -> int:
    """Raise the limit of open files as far as it goes; return how many agents that allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - _OTHER_FILES


def _check_quiet(name: str, before: Status, after: Status, count: int) -> None:
    """Nobody may have been cut off or left without renewals while the CPU was measured."""
    if after.losses != before.losses or after.refusals or after.connected != count:
        raise Wrong(f"{name}: agents were cut off: {after}")
    beats, renewals = after.beats - before.beats, after.renewals - before.renewals
    if renewals < beats / 2:  # on a busy machine two heartbeats may share a renewal
        raise Wrong(f"{name}: {beats} heartbeats and {renewals} renewals")


def _silent(serving: Serving, count: int) -> int:
    """Ask the server who is online, and how often a host was called silent since the beginning."""
    with Client(serving.url, serving.token) as client:
        for host in (hosts := list(client.all_hosts())):
            if host.health != "online" or not host.connected:
                raise Wrong(f"host {host.name} is {host.health}, connected: {host.connected}")
        if len(hosts) != count:
            raise Wrong(f"{len(hosts)} hosts instead of {count}")
        silent, since = 0, 0
        while (page := client.list_events(since=since, limit=1000)).events:
            silent += sum(event.kind in _SILENT for event in page.events)
            since = page.next
    return silent
