"""Readings of virtual VMs and of their host, made from the loads that they pretend to have.

Names and units are those of docs/reference/samples.md. Cpu, memory, disk and the rates of a VM are
functions of its id and the time alone, unless the host is overcommitted: VMs that want more cpu
than it has get their part of it, and its pressure and theirs say so. Only counters are remembered:
they grow from the first reading of a VM's process and begin anew with another.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtualloads import NOISE_MS, Load, drawn, level, memory_level, read_load
from roost.agent.drivers.virtualtraces import Trace
from roost.base.errors import InvalidRequest
from roost.wire.agentlink import SampleInfo

log = logging.getLogger("roost.agent")

#: What a processor that is busy throughout moves each second, for a VM of middling appetite.
_DISK_READ, _DISK_WRITE, _NET_SENT, _NET_RECEIVED = 8e6, 12e6, 6e6, 4e6
_BLOCK_BYTES, _PACKET_BYTES = 16_384, 1_000
#: Share of its memory that a VM which is busy throughout changes each second.
_DIRTY = 0.02
#: What the disks of a host can take before somebody waits, bytes each second for each processor.
_DISK_ROOM = 50e6
#: From this share of use on, tasks begin to wait for each other.
_CROWDED = 0.8
#: The longest time between two readings that counters grow over.
_LONGEST_MS = 600_000


@dataclass(slots=True)
class _Counters:
    """What one process of a VM has moved so far, by the names of counters."""

    restarts: int | None
    at_ms: int
    moved: dict[str, float] = field(default_factory=dict)


class _Wanted(NamedTuple):
    vm: LocalVM
    load: Load
    cpu: float  # share of what it asked for


class HostAmounts(NamedTuple):
    """What the host has; None cannot be read."""

    cpu_milli: int | None
    memory_bytes: int | None


class VirtualSampler:
    """Reads the virtual VMs of one host."""

    def __init__(self, load: Load, traces: Mapping[str, Trace], amounts: HostAmounts) -> None:
        self._load, self._traces, self._amounts = load, traces, amounts
        self._counters: dict[str, _Counters] = {}
        self._refused: dict[str, str] = {}  # loads that mean nothing, by VM: said once

    def read(self, vms: Iterable[LocalVM], at_ms: int) -> list[SampleInfo]:
        """Return one reading of each VM that runs, and one of the host."""
        vms = list(vms)
        # A paused VM keeps its process; every other that does not run has none.
        alive = {vm.id for vm in vms if vm.state in ("running", "paused")}
        self._counters = {each: kept for each, kept in self._counters.items() if each in alive}
        self._refused = {each: load for each, load in self._refused.items() if each in alive}
        wanted = [self._wanted(vm, at_ms) for vm in vms if vm.state == "running"]
        asked = sum(each.vm.cpu_milli * each.cpu for each in wanted)
        room = self._amounts.cpu_milli
        given = 1.0 if room is None or asked <= room else room / asked
        readings = [self._reading(each, given, at_ms) for each in wanted]
        host = self._host(readings, asked, at_ms)
        for reading, each in zip(readings, wanted, strict=True):
            reading.more.update(_waiting(host.more, each.cpu))
        return [*readings, host]

    def _wanted(self, vm: LocalVM, at_ms: int) -> _Wanted:
        load = self._load_of(vm)
        return _Wanted(vm, load, level(load, vm.id, at_ms, self._traces))

    def _load_of(self, vm: LocalVM) -> Load:
        """Return the VM's own load, or the host's where it has none that means something."""
        if not vm.load or self._refused.get(vm.id) == vm.load:
            return self._load
        try:
            return read_load(vm.load, self._traces)
        except InvalidRequest as error:
            self._refused[vm.id] = vm.load
            log.warning("VM %s has the load of its host: %s", vm.id, error)
            return self._load

    def _reading(self, wanted: _Wanted, given: float, at_ms: int) -> SampleInfo:
        vm, share = wanted.vm, wanted.cpu * given
        memory = int(vm.memory_bytes * memory_level(wanted.load, vm.id, at_ms))
        rates = _rates(vm, share, at_ms)
        more = self._counted(vm, rates, at_ms)
        more["dirty_bytes_per_s"] = float(int(min(memory, _DIRTY * share * vm.memory_bytes)))
        cpu = int(vm.cpu_milli * share)
        return SampleInfo(vm.id, at_ms, cpu, memory, vm.disk_bytes // 2, more)

    def _counted(self, vm: LocalVM, rates: Mapping[str, float], at_ms: int) -> dict[str, float]:
        kept = self._counters.get(vm.id)
        if kept is None or kept.restarts != vm.restarts:
            kept = self._counters[vm.id] = _Counters(vm.restarts, at_ms, dict.fromkeys(rates, 0.0))
        passed_s = min(_LONGEST_MS, max(0, at_ms - kept.at_ms)) / 1000
        kept.at_ms = max(at_ms, kept.at_ms)
        for name, rate in rates.items():
            kept.moved[name] += rate * passed_s
        return {name: float(int(moved)) for name, moved in kept.moved.items()}

    def _host(self, readings: list[SampleInfo], asked: float, at_ms: int) -> SampleInfo:
        cpu = sum(each.cpu_milli for each in readings)
        memory = sum(each.memory_bytes for each in readings)
        disk = sum(each.disk_bytes for each in readings)
        amounts = self._amounts
        more: dict[str, float] = {}
        if amounts.cpu_milli:
            more |= _pressure("cpu", asked / amounts.cpu_milli, full=0.0)
            written = asked / 1000 * (_DISK_READ + _DISK_WRITE)
            more |= _pressure("io", written / (_DISK_ROOM * amounts.cpu_milli / 1000), full=0.5)
        if amounts.memory_bytes:
            more |= _pressure("memory", memory / amounts.memory_bytes, full=0.5)
            memory = min(memory, amounts.memory_bytes)
        return SampleInfo("", at_ms, cpu, memory, disk, more)


def _rates(vm: LocalVM, share: float, at_ms: int) -> dict[str, float]:
    """Return what a VM moves each second by the names of counters; each VM has its own appetite."""
    reads, writes, sends, receives = (0.25 + 1.5 * each for each in drawn(vm.id, "appetite", 0))
    now = drawn(vm.id, "io", at_ms // NOISE_MS)
    busy = share * vm.cpu_milli / 1000
    read = busy * _DISK_READ * reads * (0.5 + now[0])
    written = busy * _DISK_WRITE * writes * (0.5 + now[1])
    sent = busy * _NET_SENT * sends * (0.5 + now[2])
    received = busy * _NET_RECEIVED * receives * (0.5 + now[3])
    return {
        "disk_read_bytes": read,
        "disk_reads": read / _BLOCK_BYTES,
        "disk_write_bytes": written,
        "disk_writes": written / _BLOCK_BYTES,
        "net_received_bytes": received,
        "net_received_packets": received / _PACKET_BYTES,
        "net_sent_bytes": sent,
        "net_sent_packets": sent / _PACKET_BYTES,
    }


def _waiting(host: Mapping[str, float], busy: float) -> dict[str, float]:
    """Return how long a VM waits, in percent: as its host's tasks do, while it has work."""
    return {
        name: round(busy * percent, 2)
        for name, percent in host.items()
        if name.endswith("_some_avg60")
    }


def _pressure(resource: str, wanted: float, full: float) -> dict[str, float]:
    """Return how long tasks wait, in percent, when this share of a resource is wanted.

    Nobody waits below four fifths; from there on ever more, and beyond the whole all that is not
    given. Of the processor of a whole machine the kernel never says that all tasks wait.
    """
    crowded = min(1.0, max(0.0, (wanted - _CROWDED) / (1.0 - _CROWDED)))
    lacking = 1.0 - 1.0 / wanted if wanted > 1.0 else 0.0
    some = round(min(100.0, 20.0 * crowded**2 + 80.0 * lacking), 2)
    return {
        f"psi_{resource}_some_avg10": some,
        f"psi_{resource}_some_avg60": some,
        f"psi_{resource}_full_avg10": round(some * full, 2),
    }
