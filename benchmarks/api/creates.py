"""Rows: creating VMs over HTTP, one at a time on many connections, and a thousand at a time.

Everything is on: tokens, an idempotency key on each request, events, decisions, log lines to a
file; and every answer is durable. The bare limit is measured right after, with the same rows.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.api.databases import Databases, seed_hosts
from benchmarks.api.http_load import Orders, Report
from benchmarks.api.measuring import Sizes, percentile, sync_times_s
from benchmarks.api.serving import REPOSITORY, Serving, running
from benchmarks.api.verifying import Wrong, verify
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_least, at_most

CONNECTIONS = 64
BATCH_CONNECTIONS = 4
#: Goals and aims by database: creates a second, p99 in syncs of the disk, placements a second.
_GOAL_PER_S = {"SQLite": 3_000.0, "PostgreSQL": 2_000.0}
_AIM_PER_S = 5_000.0
_GOAL_SHARE, _AIM_SHARE = 0.3, 0.5
_GOAL_SYNCS = {"SQLite": 10.0, "PostgreSQL": 50.0}
_GOAL_BATCH_PER_S = {"SQLite": 20_000.0, "PostgreSQL": 10_000.0}
_AIM_BATCH_PER_S = 40_000.0


def jobs(sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Job]:
    """Return the jobs of this topic on one kind of database."""
    name = f"create one, {databases.kind}"
    yield Job(name, partial(_singles, name, sizes, databases, folder))
    name = f"create many, {databases.kind}"
    yield Job(name, partial(_batches, name, sizes, databases, folder))


def _singles(name: str, sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Result]:
    database = databases.new()
    seed_hosts(database, sizes.hosts)
    untouched = databases.copy(database)
    syncs = sync_times_s(databases.folder, sizes.syncs)
    with running(database, folder / "one") as serving:
        report = _ask(name, _orders(serving, CONNECTIONS, sizes.creates, sizes.creates_before))
    syncs += sync_times_s(databases.folder, sizes.syncs)
    verify(name, database, report.created)
    bare = _bare(database, untouched, sizes.creates_before)
    per_s, sync_p99_s = sizes.creates / report.wall_s, percentile(syncs, 0.99)
    yield at_least(
        f"{name}: creates",
        per_s,
        "/s",
        sizes.goal(_GOAL_PER_S[databases.kind]),
        sizes.goal(_AIM_PER_S),
        note=f"{sizes.creates:,} on {sizes.hosts:,} hosts, {CONNECTIONS} connections, "
        f"{bare['together']:.0f} in a commit",
    )
    yield at_least(
        f"{name}: share of the bare limit",
        per_s / bare["per_s"],
        "",
        sizes.goal(_GOAL_SHARE),
        sizes.goal(_AIM_SHARE),
        note=f"bare: {bare['per_s']:,.0f}/s, {bare['cpu_us']:.0f} us of CPU each",
    )
    yield at_most(
        f"{name}: p99 latency over the disk's p99 sync",
        report.p99_s / sync_p99_s,
        "x",
        sizes.goal(_GOAL_SYNCS[databases.kind]),
        note=f"p50 {report.p50_s * 1e3:.1f} ms, p99 {report.p99_s * 1e3:.1f} ms, longest "
        f"{report.longest_s * 1e3:.0f} ms; sync p50 {percentile(syncs, 0.5) * 1e3:.2f} ms, "
        f"p99 {sync_p99_s * 1e3:.2f} ms",
    )
    yield at_most(
        f"{name}: CPU of the server",
        1e6 * report.server_cpu_s / sizes.creates,
        "us",
        None,
        note=f"each, the client's process {1e6 * report.client_cpu_s / sizes.creates:.0f} us; "
        + _busy(report),
    )


def _batches(name: str, sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Result]:
    database = databases.new()
    seed_hosts(database, sizes.hosts)
    with running(database, folder / "many") as serving:
        orders = _orders(serving, BATCH_CONNECTIONS, sizes.batches, BATCH_CONNECTIONS)
        report = _ask(name, msgspec.structs.replace(orders, batch=sizes.batch_vms))
    verify(name, database, report.created)
    vms = sizes.batches * sizes.batch_vms
    yield at_least(
        f"{name}: durable placements",
        vms / report.wall_s,
        "/s",
        sizes.goal(_GOAL_BATCH_PER_S[databases.kind]),
        sizes.goal(_AIM_BATCH_PER_S),
        note=f"{sizes.batches} batches of {sizes.batch_vms:,}, {BATCH_CONNECTIONS} connections, "
        f"p50 {report.p50_s * 1e3:.0f} ms, p99 {report.p99_s * 1e3:.0f} ms",
    )
    yield at_most(
        f"{name}: CPU of the server",
        1e6 * report.server_cpu_s / vms,
        "us",
        None,
        note=f"each VM, the client's process {1e6 * report.client_cpu_s / vms:.1f} us; "
        + _busy(report),
    )


def _busy(report: Report) -> str:
    server, machine = report.server_cpu_s / report.wall_s, report.machine_cpu_s / report.wall_s
    return f"{server:.2f} cores busy of {machine:.2f} on the whole machine of {os.cpu_count()}"


def _orders(serving: Serving, connections: int, requests: int, before: int) -> Orders:
    return Orders(
        port=serving.port,
        token=serving.token,
        server_pid=serving.pid,
        connections=connections,
        requests=requests,
        before=before,
        batch=0,
    )


def _ask(name: str, orders: Orders) -> Report:
    text = _run("benchmarks.api.http_load", msgspec.json.encode(orders).decode())
    report = msgspec.json.decode(text, type=Report)
    if report.problems:
        raise Wrong(f"{name}: {'; '.join(report.problems)}")
    return report


def _bare(source: str, target: str, before: int) -> dict[str, float]:
    text = _run("benchmarks.api.bare_inserts", source, target, str(before))
    found: dict[str, float] = json.loads(text)
    return found


def _run(module: str, *words: str) -> str:
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    if done.returncode:
        raise Wrong(f"{module} ended with {done.returncode}; what it said is above")
    return done.stdout
