"""The stage of the demo of the analysis: virtual hosts with two weeks behind them.

The past is made by the same sampler that a virtual host's agent reads its VMs with, so what is
brought in is what the hosts would have sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtualloads import STEADY
from roost.agent.drivers.virtualsampling import HostAmounts, VirtualSampler
from roost.app.demo import VirtualStage
from roost.base.units import GIB
from roost.wire.series import ImportSeries

HOSTS = 3
#: Cores of a host, and how many times they are promised.
CORES, OVERCOMMIT = 8, 2
WEEKS_MS = 14 * 86_400_000
STEP_MS = 300_000
#: Counters that are brought in beside cpu and memory.
_IO = frozenset({"disk_read_bytes", "disk_write_bytes", "net_received_bytes", "net_sent_bytes"})


class Guest(NamedTuple):
    """A VM of the demo: its id and size, and what it pretends to do."""

    id: str
    name: str
    cores: int
    load: str


class AnalysisStage(VirtualStage):
    """A control plane and three virtual hosts in one process."""

    comes_back: ClassVar[tuple[str, ...]] = ()

    async def start_others(self) -> None:
        """Start the agents of all hosts, in one process."""
        self._agents["host"] = await self._start(
            "the agents", "agent", "--name", "host", "--count", str(HOSTS),
            "--data", str(self.hosts_folder), "--server", self.context.server,
            "--cpu", str(CORES), "--overcommit-cpu", str(OVERCOMMIT), "--memory", "64GiB",
            "--disk", "1TiB", "--boot-s", "0.1",
        )  # fmt: skip


def two_weeks(
    guests: Mapping[str, Sequence[Guest]], now_ms: int
) -> Iterator[tuple[str, list[ImportSeries]]]:
    """Yield, host by host, the readings of two weeks of a host and its VMs."""
    last = now_ms - now_ms % STEP_MS
    for host, own in guests.items():
        sampler = VirtualSampler(STEADY, {}, HostAmounts(1000 * CORES, 64 * GIB))
        vms = [
            LocalVM(each.id, each.name, "running", 1000 * each.cores, 4 * GIB, load=each.load)
            for each in own
        ]
        moments = list(range(last - WEEKS_MS, last, STEP_MS))
        told: dict[str, dict[str, list[float | None]]] = {}
        for at in moments:
            for read in sampler.read(vms, at):
                figures = told.setdefault(read.vm, {})
                values = {
                    "cpu_milli": float(read.cpu_milli),
                    "memory_bytes": float(read.memory_bytes),
                    **{name: more for name, more in read.more.items() if name in _IO},
                }
                for name, value in values.items():
                    figures.setdefault(name, []).append(value)
        yield (
            host,
            [
                ImportSeries(
                    kind="vm" if vm else "host", name=vm or host, at_ms=moments, figures=figures
                )
                for vm, figures in told.items()
            ],
        )
