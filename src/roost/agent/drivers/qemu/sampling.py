"""How busy the VMs of a host are, read from the kernel and from QEMU.

Processor time comes from /proc, since the last reading. A VM that does not answer is left out, and
so is a figure that cannot be read. The names are in docs/reference/samples.md.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from roost.agent.drivers.qemu.command import BALLOON, DISK_DEVICE
from roost.agent.drivers.qemu.consoles import trim_console
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.manifest import Manifest
from roost.agent.drivers.qemu.monitor import Monitor
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.drivers.qemu.taps import tap_names
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import SampleInfo

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BALLOON_PATH = f"/machine/peripheral/{BALLOON}"
_POLL_S = 10
#: What the guest tells through its balloon, and the names of it here.
_GUEST = {
    "stat-free-memory": "guest_free_bytes",
    "stat-available-memory": "guest_available_bytes",
    "stat-total-memory": "guest_total_bytes",
    "stat-disk-caches": "guest_cache_bytes",
    "stat-swap-in": "guest_swap_in_bytes",
    "stat-swap-out": "guest_swap_out_bytes",
    "stat-major-faults": "guest_major_faults",
}
_BLOCK = {
    "rd_bytes": "disk_read_bytes",
    "wr_bytes": "disk_write_bytes",
    "rd_operations": "disk_reads",
    "wr_operations": "disk_writes",
    "flush_operations": "disk_flushes",
}
#: Columns of /proc/net/dev. What the host receives on a tap is what the VM sends.
_TAP = {0: "net_sent_bytes", 1: "net_sent_packets"} | {
    8: "net_received_bytes",
    9: "net_received_packets",
}


class _Spent(NamedTuple):
    started: int  # of the process
    at_s: float
    ticks: int


class Sampler:
    """Reads all VMs of a host; remembers the last round to tell what was used since."""

    def __init__(self, settings: QemuSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._spent: dict[str, _Spent] = {}
        self._polled: dict[str, int] = {}  # the process whose balloon was told to report
        self._dirty_turn = ""

    async def read(self, handles: Iterable[VMHandle], at_ms: int) -> list[SampleInfo]:
        """Return one reading of each VM that runs; all are asked side by side."""
        handles = list(handles)
        here = {handle.id for handle in handles}
        self._spent = {each: spent for each, spent in self._spent.items() if each in here}
        self._polled = {each: pid for each, pid in self._polled.items() if each in here}
        turn = self._next_turn([handle.id for handle in handles if handle.is_alive])
        asked = [self._one(handle, at_ms, handle.id == turn) for handle in handles]
        return [sample for sample in await asyncio.gather(*asked) if sample is not None]

    def _next_turn(self, ids: list[str]) -> str:
        """Return the VM whose dirty rate is measured in this round, in turn."""
        if not ids or not self._settings.dirty_rate_s:
            return ""
        later = [each for each in sorted(ids) if each > self._dirty_turn]
        self._dirty_turn = later[0] if later else min(ids)
        return self._dirty_turn

    async def _one(self, handle: VMHandle, at_ms: int, measure_dirty: bool) -> SampleInfo | None:
        manifest, process = handle.manifest, handle.process
        if manifest is None or process is None or not handle.is_alive:
            return None
        try:
            told = await handle.told(self._settings.ask_s)
            if told is None or told.runstate != "running":
                return None
            monitor = await handle.reach(self._settings.ask_s)
            more = await self._from_qemu(monitor, handle, process.identity.pid)
            if measure_dirty:
                await self._measure_dirty(monitor)
        except DriverError:
            return None
        pid = process.identity.pid
        facts = await asyncio.to_thread(_from_kernel, pid, handle, manifest)
        if facts.ticks is None or facts.rss_bytes is None:
            return None
        cpu_milli = self._cpu_milli(handle.id, process.identity.started, facts.ticks)
        used = facts.rss_bytes
        if "guest_total_bytes" in more and "guest_available_bytes" in more:
            used = max(0, int(more["guest_total_bytes"] - more["guest_available_bytes"]))
        more |= facts.more | {"rss_bytes": float(facts.rss_bytes)}
        if cpu_milli is None:
            return None
        return SampleInfo(handle.id, at_ms, cpu_milli, used, facts.disk_bytes, more)

    def _cpu_milli(self, vm_id: str, started: int, ticks: int) -> int | None:
        now = self._clock.monotonic()
        before = self._spent.get(vm_id)
        self._spent[vm_id] = _Spent(started, now, ticks)
        if before is None or before.started != started:
            # The first reading is of all its life; start times count from the machine's boot.
            alive_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS_PER_S
            before = _Spent(started, now - alive_s, 0)
        if now <= before.at_s:
            return None
        return round((ticks - before.ticks) / _TICKS_PER_S / (now - before.at_s) * 1000)

    async def _from_qemu(self, monitor: Monitor, handle: VMHandle, pid: int) -> dict[str, float]:
        within_s = self._settings.ask_s
        more: dict[str, float] = {}
        if self._polled.get(handle.id) != pid:
            await _set(monitor, "guest-stats-polling-interval", _POLL_S, within_s)
            self._polled[handle.id] = pid
        with suppress(DriverError):
            more["balloon_bytes"] = float((await monitor.execute("query-balloon"))["actual"])
            stats = await _get(monitor, "guest-stats", within_s)
            if stats.get("last-update"):
                more |= _named(stats["stats"], _GUEST)
        for device in await monitor.execute("query-blockstats", within_s=within_s):
            if DISK_DEVICE in str(device.get("qdev", "")).split("/"):
                more |= _named(device["stats"], _BLOCK)
        dirty = await monitor.execute("query-dirty-rate", within_s=within_s)
        if dirty.get("status") == "measured" and dirty.get("dirty-rate", -1) >= 0:
            more["dirty_bytes_per_s"] = float(dirty["dirty-rate"] << 20)
        return more

    async def _measure_dirty(self, monitor: Monitor) -> None:
        with suppress(DriverError):  # refused while one is under way, or during a move
            length = {"calc-time": self._settings.dirty_rate_s}
            await monitor.execute("calc-dirty-rate", length, within_s=self._settings.ask_s)


class _Facts(NamedTuple):
    ticks: int | None
    rss_bytes: int | None
    disk_bytes: int
    more: dict[str, float]


def _from_kernel(pid: int, handle: VMHandle, manifest: Manifest) -> _Facts:
    trim_console(handle.folder)
    taps = tap_names(manifest.order)
    more = _from_taps(pid, taps) if taps else {}
    size = 0 if manifest.shape is None else manifest.shape.memory_bytes
    if size and (resident := _resident(pid, size)) is not None:
        more["guest_resident_bytes"] = float(resident)
    ticks = rss = None
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return _Facts(ticks, rss, _occupied(handle.folder), more)


def _resident(pid: int, memory_bytes: int) -> int | None:
    """Return how much of the guest's memory the host holds; None where it cannot be told.

    The guest's memory is the one mapping of a QEMU that has just its size.
    """
    size = f"{memory_bytes // 1024} kB"
    ours = False
    with suppress(OSError, ValueError, IndexError), Path(f"/proc/{pid}/smaps").open() as lines:
        for line in lines:
            if line.startswith("Size:"):
                ours = line[5:].strip() == size
            elif ours and line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    return None


def _from_taps(pid: int, taps: tuple[str, ...]) -> dict[str, float]:
    """Return what went through the taps of a VM, all together, as its QEMU's network sees it."""
    more: dict[str, float] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
            name, _, figures = line.partition(":")
            if name.strip() in taps:
                counts = figures.split()
                for column, figure in _TAP.items():
                    more[figure] = more.get(figure, 0.0) + int(counts[column])
    return more


def _occupied(folder: Path) -> int:
    """Return what the VM's files take on the disk, holes left out."""
    total = 0
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _named(figures: dict[str, Any], names: dict[str, str]) -> dict[str, float]:
    """Return the figures that are known; QEMU says -1, or 2^64 - 1, for those that are not."""
    return {
        name: float(figures[key])
        for key, name in names.items()
        if isinstance(figures.get(key), int) and 0 <= figures[key] < 2**62
    }


async def _set(monitor: Monitor, name: str, value: object, within_s: float) -> None:
    arguments = {"path": _BALLOON_PATH, "property": name, "value": value}
    await monitor.execute("qom-set", arguments, within_s=within_s)


async def _get(monitor: Monitor, name: str, within_s: float) -> Any:
    arguments = {"path": _BALLOON_PATH, "property": name}
    return await monitor.execute("qom-get", arguments, within_s=within_s)
