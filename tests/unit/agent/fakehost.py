"""Fake /proc and /sys trees: what hosts of several kinds show, as text in files and links."""

from collections.abc import Iterator
from pathlib import Path

KIB_PER_GIB = 2**20


class FakeHost:
    """A tree that is written file by file; four processors and 16 GiB unless told otherwise."""

    def __init__(self, root: Path, *, cpus: str = "0-3", gib: int = 16) -> None:
        self.root = root
        self.write("sys/devices/system/cpu/online", f"{cpus}\n")
        self.write(
            "proc/self/status", "Name:\troost\nCpus_allowed_list:\t0-1023\nMems_allowed_list:\t0\n"
        )
        self.write(
            "proc/meminfo",
            f"MemTotal:       {gib * KIB_PER_GIB} kB\nMemFree:         900000 kB\n"
            f"MemAvailable:   {gib * KIB_PER_GIB // 2} kB\nHugePages_Total:       0\n",
        )
        self.write("proc/self/mountinfo", "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n")
        self.write("proc/self/cgroup", "0::/\n")
        self.huge_pages("sys/kernel/mm", 0)
        self.cpuinfo(["fpu aes avx avx2 vmx"] * 4)
        self.node(0, cpus, gib)

    def write(self, path: str, text: str | bytes) -> None:
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(text.encode() if isinstance(text, str) else text)

    def link(self, path: str, target: str) -> None:
        where = self.root / path
        where.parent.mkdir(parents=True, exist_ok=True)
        where.symlink_to(target)

    def cpuinfo(self, flags: list[str], model: str = "Xeon  9000 @ 2.0GHz") -> None:
        processors = [
            f"processor\t: {at}\nmodel name\t: {model}\nflags\t\t: {each}\n"
            for at, each in enumerate(flags)
        ]
        self.write("proc/cpuinfo", "\n".join(processors))

    def huge_pages(self, under: str, pages: int) -> None:
        self.write(f"{under}/hugepages/hugepages-2048kB/nr_hugepages", f"{pages}\n")

    def node(self, number: int, cpus: str, gib: int) -> None:
        where = f"sys/devices/system/node/node{number}"
        self.write(f"{where}/cpulist", f"{cpus}\n")
        self.write(
            f"{where}/meminfo",
            f"Node {number} MemTotal:       {gib * KIB_PER_GIB} kB\n"
            f"Node {number} MemFree:        1 kB\n",
        )
        self.huge_pages(where, 0)

    def pci(
        self,
        address: str,
        identity: str,
        kind: str = "030200",
        *,
        group: int | None = None,
        driver: str = "vfio-pci",
        **files: str,
    ) -> None:
        where = f"sys/bus/pci/devices/{address}"
        vendor, device = identity.split(":")
        for name, text in {
            "class": f"0x{kind}",
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            **files,
        }.items():
            self.write(f"{where}/{name}", f"{text}\n")
        if driver:
            self.link(f"{where}/driver", f"../../../../bus/pci/drivers/{driver}")
        if group is not None:
            self.link(f"{where}/iommu_group", f"../../../../kernel/iommu_groups/{group}")
            self.link(f"sys/kernel/iommu_groups/{group}/devices/{address}", f"../../{address}")

    def cgroup_v2(self, own: str, *, memory: str = "max", cpu: str = "max 100000") -> None:
        self.write(
            "proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
        )
        self.write("proc/self/cgroup", f"0::{own}\n")
        self.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
        where = f"sys/fs/cgroup{own.rstrip('/')}"
        self.write(f"{where}/cgroup.controllers", "cpu io memory\n")
        self.write(f"{where}/cgroup.type", "domain\n")
        self.write(f"{where}/memory.max", f"{memory}\n")
        self.write(f"{where}/cpu.max", f"{cpu}\n")

    def cgroup_v1(self, own: str, *, memory: int = 2**63 - 4096, quota: int = -1) -> None:
        self.write(
            "proc/self/mountinfo",
            "31 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "32 1 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
        )
        self.write("proc/self/cgroup", f"5:memory:{own}\n4:cpu,cpuacct:{own}\n0::/\n")
        for folder in {own.rstrip("/"), ""}:
            unlimited = folder != own.rstrip("/")
            limit = 2**63 - 4096 if unlimited else memory
            self.write(f"sys/fs/cgroup/memory{folder}/memory.limit_in_bytes", f"{limit}\n")
            where = f"sys/fs/cgroup/cpu,cpuacct{folder}"
            self.write(f"{where}/cpu.cfs_quota_us", f"{-1 if unlimited else quota}\n")
            self.write(f"{where}/cpu.cfs_period_us", "100000\n")

    def pressure(self, resource: str, some: str, full: str) -> None:
        self.write(
            f"proc/pressure/{resource}",
            f"some avg10={some} avg60=1.50 avg300=0.10 total=12\n"
            f"full avg10={full} avg60=0.00 avg300=0.00 total=3\n",
        )

    def stat(self, *ticks: int, cpus: int = 4) -> None:
        words = " ".join(map(str, ticks))
        lines = [f"cpu  {words}", *(f"cpu{at} {words}" for at in range(cpus)), "intr 12 0", ""]
        self.write("proc/stat", "\n".join(lines))

    def files(self) -> Iterator[Path]:
        """Yield every file and link of the tree."""
        for path in sorted(self.root.rglob("*")):
            if path.is_symlink() or path.is_file():
                yield path
