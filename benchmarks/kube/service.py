"""roost as a service: `roost serve` on SQLite with the translated hosts, all durable."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.api.creates import CONNECTIONS
from benchmarks.api.databases import Databases, with_store
from benchmarks.api.serving import REPOSITORY, running
from benchmarks.api.verifying import Wrong, verify
from benchmarks.kube.api_load import Orders, Report
from benchmarks.kube.workload import Case, check
from roost.control.hosts.registering import register
from roost.kube.base.objects import Object
from roost.kube.translate.nodes import translate_node
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.model.hosts import HostSpec
from roost.wire.agentlink import PROTOCOL, AmountInfo, Hello, Inventory

_TOGETHER = 1_000
_WARM = 500


@dataclass
class Service:
    """One run."""

    per_s: float
    cpu_ms: float


def measure(name: str, case: Case, nodes: Sequence[Object], count: int, folder: Path) -> Service:
    """Ask a fresh server for all VMs, one in a request, and check its answers and its database."""
    database = Databases("SQLite", folder).new()
    Path(database.removeprefix("sqlite:///")).unlink(missing_ok=True)
    _seed(database, [translate_node(node) for node in nodes])
    with running(database, folder / "served") as serving:
        orders = Orders(
            serving.port, serving.token, serving.pid, CONNECTIONS, case.value, count, _WARM
        )
        report = _ask(orders)
    if report.problems or len(report.placed) != count:
        raise Wrong(f"{name}: {len(report.placed)} of {count} placed; {report.problems}")
    check(name, case, nodes, report.placed)
    verify(name, database, report.created)
    return Service(count / report.wall_s, 1e3 * report.server_cpu_s / count)


def _ask(orders: Orders) -> Report:
    """Let a process of its own ask."""
    command = [sys.executable, "-m", "benchmarks.kube.api_load"]
    done = subprocess.run(
        [*command, msgspec.json.encode(orders).decode()], stdout=subprocess.PIPE, cwd=REPOSITORY
    )
    if done.returncode:
        raise Wrong(f"the load ended with {done.returncode}; what it said is above")
    return msgspec.json.decode(done.stdout, type=Report)


def _seed(database: str, hosts: Sequence[HostSpec]) -> None:
    async def work(store: Store) -> None:
        for start in range(0, len(hosts), _TOGETHER):
            some = hosts[start : start + _TOGETHER]
            await store.write(lambda tx: _register(tx, some))  # noqa: B023

    with_store(database, work)


def _register(tx: Tx, hosts: Sequence[HostSpec]) -> None:
    for host in hosts:
        inventory = Inventory(
            cpu_milli=AmountInfo(host.cpu.total),
            memory_bytes=AmountInfo(host.memory.total),
            disk_bytes=AmountInfo(host.disk.total),
            zone=host.zone,
            rack=host.rack,
            labels=dict(host.labels),
            max_vms=host.max_vms,
            virtual=True,
        )
        register(
            tx,
            Hello(
                protocol=PROTOCOL, host=host.name, instance=f"bench-{host.name}", version="bench",
                inventory=inventory, digest="0" * 16,
            ),
        )  # fmt: skip
