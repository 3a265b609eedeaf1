"""Sizes, and what Linux knows about a process and a disk."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SYNCED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large everything is. Goals are stated for the full sizes; a short run has none."""

    hosts: int
    creates: int
    creates_before: int  # that warm up and are not timed
    batches: int
    batch_vms: int
    agents: int
    agents_watched_s: float
    timers: tuple[float, float, float]  # heartbeat, suspect and offline, in seconds
    start_hosts: int
    start_vms: int
    syncs: int
    full: bool

    def goal(self, value: float) -> float | None:
        """Return a goal that holds for the full sizes only."""
        return value if self.full else None


FULL = Sizes(
    hosts=1_000,
    creates=25_000,
    creates_before=2_000,
    batches=36,
    batch_vms=1_000,
    agents=10_000,
    agents_watched_s=30.0,
    timers=(5.0, 15.0, 60.0),
    start_hosts=10_000,
    start_vms=100_000,
    syncs=1_000,
    full=True,
)
SHORT = Sizes(
    hosts=200,
    creates=2_000,
    creates_before=500,
    batches=12,
    batch_vms=250,
    agents=500,
    agents_watched_s=4.0,
    timers=(1.0, 3.0, 6.0),
    start_hosts=500,
    start_vms=5_000,
    syncs=200,
    full=False,
)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that all threads of a process have used."""
    # The name in parentheses may hold spaces; what follows it is regular.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def machine_cpu_s() -> float:
    """Return the CPU seconds that everything on this machine has used together."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])  # idle, and waiting for a disk
    return (sum(map(int, fields[:8])) - idle) / _TICKS_PER_S


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Return the memory of a process: what it has now, or VmHWM for the most it ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/{pid}/status")


def sync_times_s(folder: Path, count: int) -> list[float]:
    """Append a page to a file and make it durable, again and again; return how long each took."""
    path = folder / "sync-probe"
    page = os.urandom(_SYNCED_BYTES)
    spent = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(file, page)
            os.fsync(file)
            spent.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return spent


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that so large a share of them does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
