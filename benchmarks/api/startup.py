"""Rows: how long a server takes until it is ready, with a full ledger and the kernels compiled."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.api.databases import Databases, seed_hosts, seed_vms
from benchmarks.api.measuring import Sizes, cpu_s, memory_mib
from benchmarks.api.serving import NEVER_OFFLINE, start
from benchmarks.api.verifying import Wrong, verify
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most
from roost.client.synchronous import Client

_GOAL_S, _AIM_S = 5.0, 3.0
_ROUNDS = 3


def jobs(sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Job]:
    """Return the jobs of this topic on one kind of database."""
    name = f"start, {databases.kind}"
    yield Job(name, partial(_start, name, sizes, databases, folder / "start"))


def _start(name: str, sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Result]:
    if sizes.full:
        start(databases.new(), folder / "empty").stop()  # compiles the kernels if nobody has yet
    database = databases.new()
    seed_hosts(database, sizes.start_hosts)
    seed_vms(database, sizes.start_vms, sizes.start_hosts)
    spent = []
    for _ in range(_ROUNDS if sizes.full else 1):
        serving = start(database, folder, NEVER_OFFLINE)
        try:
            spent.append(serving.ready_s)
            cpu, mib = cpu_s(serving.pid), memory_mib(serving.pid)
            _check_loaded(name, serving.url, serving.token, sizes)
        finally:
            serving.stop()
    verify(name, database, sizes.start_vms)
    yield at_most(
        f"{name}: until ready",
        median(spent),
        "s",
        sizes.goal(_GOAL_S),
        sizes.goal(_AIM_S),
        note=f"{sizes.start_hosts:,} hosts and {sizes.start_vms:,} VMs, kernels compiled; CPU "
        f"{cpu:.1f} s, {mib:.0f} MiB; {', '.join(f'{each:.2f}' for each in spent)} s",
    )


def _check_loaded(name: str, url: str, token: str, sizes: Sizes) -> None:
    """What is ready must know everything: the sum of VMs over all hosts."""
    with Client(url, token) as client:
        there = sum(host.vms for host in client.all_hosts())
    if there != sizes.start_vms:
        raise Wrong(f"{name}: ready with {there} VMs of {sizes.start_vms}")
