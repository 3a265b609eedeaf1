"""What a real host has, read from /proc, /sys and the file system of its VMs.

The QEMU driver registers with it. Every amount is read alone: one that cannot be read, or could be
less than it looks because something about it cannot be read, has the total None, which counts as
full. Amounts that the operator has given need no reading; that is how several agents divide one
machine. All of it blocks, so it runs in a thread.
"""

import asyncio
import logging
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roost.agent.machine.diskroom import DiskRoom
from roost.agent.machine.pcidevices import read_devices
from roost.agent.machine.pressure import UseReader
from roost.base.units import GIB
from roost.hostkit.machine.cgroups import Unreadable, cpu_limit_milli, memory_limit
from roost.hostkit.machine.sysfs import cpu_list, kib_line, names_in, number, read_number, read_text
from roost.wire.agentlink import (
    AmountInfo,
    CellInfo,
    DeviceInfo,
    Inventory,
    SampleInfo,
    TaintInfo,
)

log = logging.getLogger("roost.agent")

#: Processor features that programs are built for, announced as capabilities: "cpu:avx2".
FEATURES = frozenset(
    {"aes", "amx_tile", "asimd", "avx", "avx2", "avx512_vnni", "avx512f", "bmi2", "f16c", "fma"}
    | {"pclmulqdq", "rdrand", "sha2", "sha_ni", "sse4_2", "sve", "svm", "vaes", "vmx"}
)
#: What a host keeps of its memory unless told otherwise: 1 GiB or a twentieth, the larger.
RESERVE_BYTES, RESERVE_PART = GIB, 20
#: NUMA cells of one host that the fleet can count.
MOST_CELLS = 62
_NODES = "sys/devices/system/node"


@dataclass(frozen=True, slots=True)
class Given:
    """Amounts that the operator has given; None is read from the machine."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None


class HostReader:
    """Reads one host. `folder` is where its VMs' disks lie; `root` is / but in tests.

    Without `features` no features of the processor are announced: guests do not get them.
    `beside_bytes` is what a hypervisor takes beside a guest's memory, kept once for each core.
    """

    def __init__(
        self,
        folder: Path,
        *,
        root: Path = Path("/"),
        given: Given | None = None,
        pci: Iterable[str] = (),
        features: bool = True,
        beside_bytes: int = 0,
    ) -> None:
        self._folder = folder
        self._beside_bytes = beside_bytes
        self._root = root
        self._given = given or Given()
        self._pci = frozenset(pci)
        self._features = features
        self._use = UseReader(folder, root=root)
        self._room = DiskRoom(folder)
        self._said: set[str] = set()

    async def inventory(self) -> Inventory:
        """Return what the host has, read in a thread."""
        return await asyncio.to_thread(self.read)

    async def sample(self, at_ms: int) -> SampleInfo | None:
        """Return how busy the host is, or None when that cannot be told."""
        return await asyncio.to_thread(self._use.read, at_ms)

    async def conditions(self) -> list[TaintInfo]:
        """Return the taints that the host has because of how it is now."""
        return await asyncio.to_thread(self._room.conditions)

    def devices(self) -> list[DeviceInfo]:
        """Return the devices at their positions, with the addresses that a driver needs."""
        return read_devices(self._root, self._pci)

    def cell_numbers(self) -> list[int]:
        """Return the kernel's number of each NUMA cell; VMs are bound to positions in this list."""
        return cell_numbers(self._root)

    def read(self) -> Inventory:
        """Return what the host has; blocks."""
        root, given = self._root, self._given
        cpu = _allowed_cpu_milli(root)
        memory = _allowed_memory(root)
        info = read_text(root / "proc/cpuinfo")
        model = cpu_model(info)
        features = cpu_features(info) if self._features else set()
        found = Inventory(
            cpu_milli=AmountInfo(cpu if given.cpu_milli is None else given.cpu_milli),
            memory_bytes=_memory_amount(
                memory, given.memory_bytes, (cpu or 0) * self._beside_bytes // 1000
            ),
            disk_bytes=_disk_amount(self._folder, given.disk_bytes),
            labels={"cpu-model": model} if model else {},
            architecture=platform.machine(),
            driver="qemu",
            capabilities=[f"cpu:{flag}" for flag in sorted(features)],
            devices=self.devices(),
            cells=_divided(read_cells(root), (cpu, given.cpu_milli), (memory, given.memory_bytes)),
        )
        self._say_unknown(found)
        return found

    def _say_unknown(self, found: Inventory) -> None:
        """Log once of each amount that it cannot be read, and again when it could meanwhile."""
        amounts = {"cpu": found.cpu_milli, "memory": found.memory_bytes, "disk": found.disk_bytes}
        unknown = {name for name, amount in amounts.items() if amount.total is None}
        for name in sorted(unknown - self._said):
            log.warning(
                "the %s of this host cannot be read and counts as full; give --%s", name, name
            )
        self._said = unknown


async def read_inventory(
    folder: Path,
    *,
    root: Path = Path("/"),
    given: Given | None = None,
    pci: Iterable[str] = (),
    features: bool = True,
) -> Inventory:
    """Return what this host has; `folder` is where its VMs' disks lie."""
    return await HostReader(folder, root=root, given=given, pci=pci, features=features).inventory()


def cpu_features(cpuinfo: str | None) -> set[str]:
    """Return those of FEATURES that every processor has."""
    found: set[str] | None = None
    for line in (cpuinfo or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags = set(value.split())
            found = flags if found is None else found & flags
    return (found or set()) & FEATURES


def cpu_model(cpuinfo: str | None) -> str:
    """Return the processors' name, empty if there is none or several."""
    names = {
        " ".join(value.split())
        for line in (cpuinfo or "").splitlines()
        for name, _, value in [line.partition(":")]
        if name.strip() == "model name"
    }
    return names.pop()[:200] if len(names) == 1 else ""


def online_cpus(root: Path) -> frozenset[int] | None:
    """Return the processors that are online and that the agent, and so its VMs, may run on."""
    online = cpu_list(read_text(root / "sys/devices/system/cpu/online"))
    allowed = None
    for line in (read_text(root / "proc/self/status") or "").splitlines(keepends=True):
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            allowed = cpu_list(value)
    return None if online is None or allowed is None else online & allowed


def cell_numbers(root: Path) -> list[int]:
    """Return the kernel's numbers of the NUMA cells, sorted."""
    names = names_in(root / _NODES) or []
    numbers = [number(name.removeprefix("node")) for name in names if name.startswith("node")]
    return sorted(each for each in numbers if each is not None)[:MOST_CELLS]


def read_cells(root: Path) -> list[CellInfo]:
    """Return the NUMA cells; one of which something cannot be read has nothing to give."""
    usable = online_cpus(root)
    cells = []
    for each in cell_numbers(root):
        folder = root / _NODES / f"node{each}"
        cpus = cpu_list(read_text(folder / "cpulist"))
        memory = _without_huge_pages(
            kib_line(read_text(folder / "meminfo"), "MemTotal"), folder / "hugepages"
        )
        if cpus is None or usable is None or memory is None:
            cells.append(CellInfo(0, 0))
        else:
            cells.append(CellInfo(1000 * len(cpus & usable), memory))
    return cells


def _allowed_cpu_milli(root: Path) -> int | None:
    usable = online_cpus(root)
    try:
        limit = cpu_limit_milli(root)
    except Unreadable:
        return None
    return _least(1000 * len(usable) if usable else None, limit)


def _allowed_memory(root: Path) -> int | None:
    total = _without_huge_pages(
        kib_line(read_text(root / "proc/meminfo"), "MemTotal"),
        root / "sys/kernel/mm/hugepages",
    )
    try:
        limit = memory_limit(root)
    except Unreadable:
        return None
    return _least(total, limit)


def _least(total: int | None, limit: int | None) -> int | None:
    return total if total is None or limit is None else min(total, limit)


def _without_huge_pages(total: int | None, folder: Path) -> int | None:
    """Return the memory besides the pool of huge pages, which VMs here do not use."""
    for name in names_in(folder) or ():
        page_kib = number(name.removeprefix("hugepages-").removesuffix("kB"))
        pages = read_number(folder / name / "nr_hugepages")
        if total is None or page_kib is None or pages is None:
            return None
        total -= pages * page_kib * 1024
    return None if total is None else max(0, total)


def _memory_amount(read: int | None, given: int | None, beside: int = 0) -> AmountInfo:
    if given is not None:
        return AmountInfo(given)
    if read is None:
        return AmountInfo(None)
    return AmountInfo(read, reserve=min(read, max(RESERVE_BYTES, read // RESERVE_PART) + beside))


def _disk_amount(folder: Path, given: int | None) -> AmountInfo:
    """Return the size of a file system, of which what others use now is kept.

    That is rounded up to whole GiB, so that it is not another number at every registration.
    """
    if given is not None:
        return AmountInfo(given)
    try:
        found = os.statvfs(folder)
        own = allocated_in(folder)
    except OSError:
        return AmountInfo(None)
    used = (found.f_blocks - found.f_bavail) * found.f_frsize
    others = -(-max(0, used - own) // GIB) * GIB
    return AmountInfo(found.f_blocks * found.f_frsize, reserve=others)


def allocated_in(folder: Path) -> int:
    """Return the bytes that the files below a folder take on disk; holes take none."""
    found = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):  # of a VM that is destroyed meanwhile
                found += (Path(parent) / name).lstat().st_blocks * 512
    return found


def _divided(
    cells: list[CellInfo], cpu: tuple[int | None, int | None], memory: tuple[int | None, int | None]
) -> list[CellInfo]:
    """Return an agent's share of the cells: none gives more than the whole that it has."""
    return [
        CellInfo(_share(cell.cpu_milli, *cpu), _share(cell.memory_bytes, *memory)) for cell in cells
    ]


def _share(amount: int, read: int | None, given: int | None) -> int:
    if given is None:
        return 0 if read is None else min(amount, read)
    if not read:
        return 0
    return min(amount, amount * given // read)
