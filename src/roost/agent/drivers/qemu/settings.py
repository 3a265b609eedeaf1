"""What the QEMU driver of one host is set to. Read once by whoever composes the agent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roost.wire.agentlink import BootInfo

Accel = Literal["auto", "tcg", "kvm"]


@dataclass(frozen=True, slots=True)
class QemuSettings:
    """Defaults suit one host with its own disks and software emulation where KVM is missing."""

    folder: Path  # of the agent; VMs are in its folder `vms`
    accel: Accel = "auto"  # auto: KVM when it can be used, else TCG
    binary: str = "qemu-system-x86_64"
    machine: str = "pc"
    cpu_model: str = ""  # empty: host under KVM, qemu64 under TCG; name one to move between hosts
    shared_disks: Path | None = None  # a folder that all hosts share; None: each has its own disks
    bridges: tuple[str, ...] = ()  # that VMs may be on; none: no taps
    count_flows: tuple[str, ...] = ()  # of them: those on which it is counted who talks
    disk_bytes_s: int = 0  # the most that one guest reads and writes each second; 0: no limit
    disk_iops: int = 0  # and in how many operations; 0: no limit
    run_as: str = ""  # the user that QEMU becomes once it has opened its files; empty: the agent's
    default_boot: BootInfo | None = None  # for orders that do not say what to boot
    start_s: float = 30.0  # how long a QEMU may take until it answers
    stop_grace_s: float = 30.0  # how long a guest may take to shut down for a restart or cold move
    ask_s: float = 3.0  # how long a QEMU may take for one answer when many are asked
    dirty_rate_s: int = 1  # how long the dirty rate of one VM is measured; 0: never
    # Moves
    migrate_address: str = "127.0.0.1"  # where incoming VMs are received, as other hosts reach it
    migrate_ports: tuple[int, int] = (0, 0)  # first and last; (0, 0): any free one
    migrate_tls: Path | None = None  # a folder with ca-cert.pem and so on; None: no TLS
    migrate_bandwidth_bytes: int = 0  # per second; 0: no limit
    migrate_downtime_ms: int = 300
    migrate_limit_s: float = 1800.0  # a move that takes longer is given up
    migrate_progress_s: float = 30.0  # so is one that has sent nothing for so long

    @property
    def limits_disk(self) -> bool:
        """Return whether guests are held back in what they read and write."""
        return bool(self.disk_bytes_s or self.disk_iops)

    @property
    def vms(self) -> Path:
        """Return where the folders of the VMs are."""
        return self.folder / "vms"
