"""What a machine has for attempts: cores, memory and disk, less what the machine itself needs."""

import os
from dataclasses import dataclass
from pathlib import Path

from roost.base.units import GIB, MIB
from roost.hostkit.machine.cgroups import Unreadable, cpu_limit_milli, memory_limit
from roost.hostkit.machine.limitgroups import CONTROLLERS, LimitGroups
from roost.hostkit.machine.sysfs import kib_line, read_text
from roost.wire.workerlink import WorkerCapacity
from roost.worker.containers import Engine


@dataclass(frozen=True, slots=True)
class Given:
    """What an operator or provider says that a machine has; None: look."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None


def measure(given: Given, data: Path, groups: LimitGroups, engine: Engine | None) -> WorkerCapacity:
    """Return what attempts may have on this machine, and how their limits are held."""
    held = all(controller in groups.bases() for controller in CONTROLLERS)
    room = os.statvfs(data)
    return WorkerCapacity(
        cpu_milli=_first(given.cpu_milli, _cpu_milli()),
        memory_bytes=_first(given.memory_bytes, _memory_bytes()),
        disk_bytes=_first(given.disk_bytes, room.f_bavail * room.f_frsize),
        limits="cgroup" if held else "rlimit",
        containers=engine.name if engine is not None else "",
    )


def _first(said: int | None, found: int) -> int:
    return found if said is None else said


def _cpu_milli() -> int:
    cores = 1000 * len(os.sched_getaffinity(0))
    try:
        limit = cpu_limit_milli(Path("/"))
    except Unreadable:
        return cores
    return cores if limit is None else min(cores, limit)


def _memory_bytes() -> int:
    """Return the machine's memory or its group's, less a twentieth, at least 128 MiB."""
    total = kib_line(read_text(Path("/proc/meminfo")), "MemTotal") or GIB
    try:
        limit = memory_limit(Path("/"))
    except Unreadable:
        limit = None
    whole = total if limit is None else min(total, limit)
    return max(0, whole - max(whole // 20, 128 * MIB))
