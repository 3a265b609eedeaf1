"""How busy a host is now: processor, memory and disk in use, and the kernel's pressure figures.

Pressure is the share of time, in percent, that some or all tasks stood still for want of a
resource. What cannot be read is left out; a host that cannot be read has no sample at all.
"""

import math
import os
from pathlib import Path
from typing import NamedTuple

from roost.hostkit.machine.sysfs import kib_line, number, read_text
from roost.wire.agentlink import SampleInfo

_RESOURCES = ("cpu", "memory", "io")
_FIGURES = (("some", "avg10"), ("some", "avg60"), ("full", "avg10"))
_IDLE, _IOWAIT, _STEAL = 3, 4, 7


def read_pressure(root: Path) -> dict[str, float]:
    """Return the pressure figures by name, such as "psi_cpu_some_avg10"."""
    found = {}
    for resource in _RESOURCES:
        lines = _pressure_lines(read_text(root / "proc/pressure" / resource))
        for who, window in _FIGURES:
            percent = _percent(lines.get(who, {}).get(window))
            if percent is not None:
                found[f"psi_{resource}_{who}_{window}"] = percent
    return found


def _pressure_lines(text: str | None) -> dict[str, dict[str, str]]:
    lines = {}
    for line in (text or "").splitlines():
        who, *figures = line.split() or [""]
        lines[who] = dict(figure.partition("=")[::2] for figure in figures)
    return lines


def _percent(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0.0 <= value <= 100.0 else None


class Ticks(NamedTuple):
    """Time that the processors have spent since boot, in the kernel's ticks."""

    busy: int
    total: int
    cpus: int


def read_ticks(root: Path) -> Ticks | None:
    """Return the time spent until now by all processors together."""
    lines = (read_text(root / "proc/stat") or "").splitlines()
    cpus = sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines)
    if not lines or not lines[0].startswith("cpu ") or cpus == 0:
        return None
    # Time of guests is part of the first two figures; adding the last two would count it twice.
    figures = [number(word) for word in lines[0].split()[1 : _STEAL + 2]]
    known = [figure for figure in figures if figure is not None]
    if len(known) != len(figures) or len(known) <= _IOWAIT:
        return None
    total = sum(known)
    return Ticks(total - known[_IDLE] - known[_IOWAIT], total, cpus)


def cpu_used_milli(before: Ticks, after: Ticks) -> int | None:
    """Return the millicores in use between two readings; None when no time has passed."""
    passed = after.total - before.total
    if passed <= 0:
        return None
    busy = min(max(after.busy - before.busy, 0), passed)
    return busy * after.cpus * 1000 // passed


def read_memory_used(root: Path) -> int | None:
    """Return the bytes of memory that are neither free nor could be freed at once."""
    text = read_text(root / "proc/meminfo")
    total, available = kib_line(text, "MemTotal"), kib_line(text, "MemAvailable")
    if total is None or available is None:
        return None
    return max(0, total - available)


def read_disk_used(folder: Path) -> int | None:
    """Return the bytes in use on a folder's file system."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return (found.f_blocks - found.f_bfree) * found.f_frsize


class UseReader:
    """Reads samples of the host; processor time is counted from the reading before."""

    def __init__(self, folder: Path, *, root: Path = Path("/")) -> None:
        self._folder = folder
        self._root = root
        self._before = read_ticks(root)

    def read(self, at_ms: int) -> SampleInfo | None:
        """Return the host's sample, or None when processor or memory cannot be told."""
        before, self._before = self._before, read_ticks(self._root)
        memory = read_memory_used(self._root)
        if before is None or self._before is None or memory is None:
            return None
        cpu = cpu_used_milli(before, self._before)
        if cpu is None:
            self._before = before  # too early; the next reading is counted from the same time
            return None
        disk = read_disk_used(self._folder)
        more = read_pressure(self._root)
        return SampleInfo("", at_ms, cpu, memory, disk or 0, more)
