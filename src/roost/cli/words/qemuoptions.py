"""The options of `roost agent --driver qemu`: how each is typed, and what the words mean.

Only words are looked at here. Whether a file, a folder or a program is there is found out when the
agent is put together (`roost.app.qemuagents`).
"""

import math
import re
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from roost.app.options import QemuOptions
from roost.base.errors import InvalidRequest
from roost.base.units import parse_bytes

_QEMU = "The QEMU driver"
_SCHEMES = ("https://", "http://", "file:///")


def _option(**given: Any) -> Any:
    """Return an option of the driver's panel."""
    return typer.Option(rich_help_panel=_QEMU, **given)


class Accel(StrEnum):
    """What executes a guest's instructions."""

    AUTO = "auto"
    TCG = "tcg"
    KVM = "kvm"


AccelOption = Annotated[
    Accel | None,
    _option(help="KVM, software emulation (tcg), or KVM where it can be used (default: auto)."),
]
QemuOption = Annotated[
    str | None,
    _option(metavar="BINARY", help="QEMU itself, a path or a name (default: qemu-system-x86_64)."),
]
CpuModelOption = Annotated[
    str | None,
    _option(
        metavar="MODEL",
        help="Processor that guests see; the same on hosts that VMs move between (default: the "
        "host's under KVM, else qemu64).",
    ),
]
BridgeOption = Annotated[
    list[str] | None,
    _option(
        metavar="NAME", help="A bridge of this host that VMs may be on; repeatable (default: none)."
    ),
]
CountFlowsOption = Annotated[
    list[str] | None,
    _option(
        metavar="NAME",
        help="A bridge of --bridge on which to count which VMs talk (nftables); repeatable "
        "(default: none).",
    ),
]
PciOption = Annotated[
    list[str] | None,
    _option(
        metavar="VENDOR:DEVICE",
        help="PCI devices that VMs may have beside GPUs (8086:1572); bound to vfio-pci.",
    ),
]
QemuUserOption = Annotated[
    str | None,
    _option(
        metavar="USER",
        help="User that QEMU becomes once it has opened its files; for agents of root "
        "(default: the agent's own).",
    ),
]
VmDiskBandwidthOption = Annotated[
    str | None,
    _option(
        metavar="SIZE",
        help="Most that one VM reads and writes on its disk each second (default: no limit).",
    ),
]
VmDiskIopsOption = Annotated[
    int | None,
    _option(
        min=1,
        metavar="N",
        help="Most operations of one VM on its disk each second (default: no limit).",
    ),
]
SharedDisksOption = Annotated[
    Path | None,
    _option(
        metavar="DIR",
        help="Folder of the VMs' disks that all hosts share (default: each host has its own).",
    ),
]
ImageFromOption = Annotated[
    list[str] | None,
    _option(metavar="PREFIX", help="What the URL of an image may begin with (default: https://)."),
]
ImageCacheOption = Annotated[
    str | None,
    _option(
        metavar="SIZE",
        help="Images to keep that no VM needs now, and the largest to take (default: 20GiB).",
    ),
]
DefaultImageOption = Annotated[
    Path | None,
    _option(metavar="FILE", help="Disk image of VMs that do not say what they boot."),
]
DefaultKernelOption = Annotated[
    Path | None,
    _option(metavar="FILE", help="Kernel of such VMs."),
]
DefaultInitrdOption = Annotated[
    Path | None,
    _option(metavar="FILE", help="Initial RAM disk of such VMs."),
]
DefaultCmdlineOption = Annotated[
    str | None,
    _option(metavar="TEXT", help="Command line of that kernel (default: console=ttyS0)."),
]
MigrateAddressOption = Annotated[
    str | None,
    _option(
        metavar="HOST|unix:DIR",
        help="Where VMs that move here are received, as other hosts reach it (default: 127.0.0.1).",
    ),
]
MigratePortsOption = Annotated[
    str | None,
    _option(metavar="A-B", help="Ports for them; a move takes two or three (default: any)."),
]
MigrateTlsOption = Annotated[
    Path | None,
    _option(
        metavar="DIR", help="Certificates for moves: ca-cert.pem and those of server and client."
    ),
]
MigrateBandwidthOption = Annotated[
    str | None,
    _option(
        metavar="SIZE",
        help="Most that one move sends each second (default: no limit; emulated: 128MiB).",
    ),
]
MigrateLimitOption = Annotated[
    float | None,
    _option(
        min=1,
        metavar="SECONDS",
        help="A move that takes longer is given up; the VM stays (default: 1800).",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuWords:
    """What was typed, named as the options are; None was not."""

    accel: Accel | None = None
    qemu: str | None = None
    cpu_model: str | None = None
    pci: list[str] | None = None
    bridge: list[str] | None = None
    count_flows: list[str] | None = None
    qemu_user: str | None = None
    vm_disk_bandwidth: str | None = None
    vm_disk_iops: int | None = None
    shared_disks: Path | None = None
    image_from: list[str] | None = None
    image_cache: str | None = None
    default_image: Path | None = None
    default_kernel: Path | None = None
    default_initrd: Path | None = None
    default_cmdline: str | None = None
    migrate_address: str | None = None
    migrate_ports: str | None = None
    migrate_tls: Path | None = None
    migrate_bandwidth: str | None = None
    migrate_limit: float | None = None


def read_qemu(words: QemuWords, *, used: bool) -> QemuOptions:
    """Return what the words mean; refuse any of them when the driver is not `used`."""
    known = QemuOptions()
    if not used:
        for each in fields(words):
            if getattr(words, each.name) is not None:
                option = f"--{each.name.replace('_', '-')}"
                raise InvalidRequest(f"{option} is an option of --driver qemu")
        return known
    if words.default_kernel is None:
        for option, given in (
            ("--default-initrd", words.default_initrd),
            ("--default-cmdline", words.default_cmdline),
        ):
            if given is not None:
                raise InvalidRequest(f"{option} needs --default-kernel")
    return QemuOptions(
        accel=known.accel if words.accel is None else words.accel.value,
        binary=known.binary if words.qemu is None else _word(words.qemu, "--qemu"),
        cpu_model="" if words.cpu_model is None else _word(words.cpu_model, "--cpu-model"),
        pci=tuple(read_pci(text) for text in words.pci or ()),
        bridges=tuple(_word(text, "--bridge") for text in words.bridge or ()),
        count_flows=_counted(words),
        run_as="" if words.qemu_user is None else _word(words.qemu_user, "--qemu-user"),
        disk_bytes_s=(
            0
            if words.vm_disk_bandwidth is None
            else parse_bytes(words.vm_disk_bandwidth, "--vm-disk-bandwidth")
        ),
        disk_iops=words.vm_disk_iops or 0,
        shared_disks=_absolute(words.shared_disks),
        image_from=tuple(read_prefix(text) for text in words.image_from or known.image_from),
        image_cache_bytes=(
            known.image_cache_bytes
            if words.image_cache is None
            else parse_bytes(words.image_cache, "--image-cache")
        ),
        default_image=_absolute(words.default_image),
        default_kernel=_absolute(words.default_kernel),
        default_initrd=_absolute(words.default_initrd),
        default_cmdline=words.default_cmdline or "",
        migrate_address=(
            known.migrate_address
            if words.migrate_address is None
            else read_address(words.migrate_address)
        ),
        migrate_ports=(
            known.migrate_ports if words.migrate_ports is None else read_ports(words.migrate_ports)
        ),
        migrate_tls=_absolute(words.migrate_tls),
        migrate_bandwidth_bytes=(
            0
            if words.migrate_bandwidth is None
            else parse_bytes(words.migrate_bandwidth, "--migrate-bandwidth")
        ),
        migrate_limit_s=(
            known.migrate_limit_s
            if words.migrate_limit is None
            else read_seconds(words.migrate_limit, "--migrate-limit")
        ),
    )


def _counted(words: QemuWords) -> tuple[str, ...]:
    """Return the bridges on which it is counted who talks; VMs must be allowed on each."""
    for name in words.count_flows or ():
        if name not in (words.bridge or ()):
            raise InvalidRequest(
                f"--count-flows {name!r}: no VM may be on that bridge",
                hint=f"Maybe --bridge {name} --count-flows {name}.",
            )
    return tuple(words.count_flows or ())


def read_pci(text: str) -> str:
    """Return "vendor:device" in small letters."""
    if not re.fullmatch(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}", text):
        raise InvalidRequest(
            f"--pci {text!r} is not VENDOR:DEVICE in hexadecimal digits",
            hint="Maybe 8086:1572; lspci -n shows them.",
        )
    return text.lower()


def read_prefix(text: str) -> str:
    """Return what URLs of images may begin with; it must say the whole way."""
    if not text.startswith(_SCHEMES) or ".." in text.split("/"):
        hint = "Maybe https://images.example/ or file:///srv/images/."
        raise InvalidRequest(
            f"--image-from {text!r} does not begin with https://, http:// or file:///"
            if ".." not in text.split("/")
            else f"--image-from {text!r} has a part '..'",
            hint=hint,
        )
    return text


def read_address(text: str) -> str:
    """Return where VMs that move here are received: a host, or unix: and a folder."""
    if text.startswith("unix:"):
        if not text.removeprefix("unix:").startswith("/"):
            raise InvalidRequest(
                f"--migrate-address {text!r} does not name a folder by its whole path",
                hint="Maybe unix:/run/roost/moves?",
            )
        return text
    if text in ("0.0.0.0", "::", "*"):
        raise InvalidRequest(
            f"--migrate-address {text!r} is not an address that other hosts can reach",
            hint="Maybe the address of this host in the network of the moves.",
        )
    if not re.fullmatch(r"[0-9A-Za-z.:_%-]+", text) or re.fullmatch(r"[^:]+:[0-9]+", text):
        raise InvalidRequest(
            f"--migrate-address {text!r} is neither a host nor unix:DIR",
            hint="Maybe without a port; --migrate-ports has the ports." if ":" in text else None,
        )
    return text


def read_ports(text: str) -> tuple[int, int]:
    """Return the first and the last port that "A-B" means."""
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    if match is None:
        raise InvalidRequest(f"--migrate-ports {text!r} is not A-B", hint="Maybe 49152-49215?")
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last <= 65535:
        raise InvalidRequest(
            f"--migrate-ports {text!r} is not a range of ports from 1 to 65535, the lower first"
        )
    return first, last


def read_seconds(seconds: float, option: str) -> float:
    """Return seconds that end: typer lets "inf" and "nan" pass as numbers."""
    if not math.isfinite(seconds):
        raise InvalidRequest(f"{option} {seconds} is not a number of seconds")
    return seconds


def _word(text: str, option: str) -> str:
    if not text.strip():
        raise InvalidRequest(f"{option} is empty")
    return text


def _absolute(path: Path | None) -> Path | None:
    # QEMU runs in the folder of its VM, where a relative path would mean something else.
    return None if path is None else path.absolute()
