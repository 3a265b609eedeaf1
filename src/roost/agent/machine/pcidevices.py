"""GPUs and other PCI devices that VMs can be given, from /sys/bus/pci.

A device is offered only when a VM could have it today: it is in an IOMMU group, it is bound to
vfio-pci, and so is all else in its group. GPUs are always looked at, but for the one that shows
the host's own console; other devices when their `vendor:device` was asked for. A device's position
in the answer follows its address, so it stays the same as long as no card comes or goes.
"""

import logging
import re
from collections.abc import Collection
from pathlib import Path

from roost.base.units import GIB
from roost.hostkit.machine.sysfs import link_name, names_in, number, read_number, read_text
from roost.wire.agentlink import DeviceInfo

log = logging.getLogger("roost.agent")

#: Devices of one host that the fleet can count.
MOST_DEVICES = 62

_DEVICES = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DISPLAY, _BRIDGE, _VGA = 0x03, 0x06, 0x0300

#: Names and memory that sysfs does not tell. They stand here and not in the machine's pci.ids, so
#: that one card has one name on every host.
_KNOWN: dict[str, tuple[str, int]] = {
    "10de:15f8": ("P100", 16),
    "10de:1b38": ("P40", 24),
    "10de:1db4": ("V100", 16),
    "10de:1db6": ("V100", 32),
    "10de:1eb8": ("T4", 16),
    "10de:20b0": ("A100", 40),
    "10de:20b2": ("A100", 80),
    "10de:20b5": ("A100", 80),
    "10de:20f1": ("A100", 40),
    "10de:2235": ("A40", 48),
    "10de:2236": ("A10", 24),
    "10de:2330": ("H100", 80),
    "10de:2331": ("H100", 80),
    "10de:26b5": ("L40", 48),
    "10de:26b9": ("L40S", 48),
    "10de:27b8": ("L4", 24),
}


def read_devices(root: Path, asked: Collection[str] = ()) -> list[DeviceInfo]:
    """Return what can be given to VMs; `asked` names devices other than GPUs, as "8086:1572"."""
    bus = root / _DEVICES
    found: list[DeviceInfo] = []
    groups_taken: set[str] = set()
    for address in names_in(bus) or ():
        if not _ADDRESS.fullmatch(address):
            continue
        model = _model(bus / address)
        if model is None or not (model in asked or _is_gpu(bus / address)):
            continue
        group = link_name(bus / address / "iommu_group")
        if reason := _why_not(root, address, group, groups_taken):
            log.info("PCI device %s (%s) is not offered to VMs: %s", address, model, reason)
            continue
        groups_taken.add(str(group))
        name, gib = _KNOWN.get(model, (model, 0))
        found.append(DeviceInfo(name, gib * GIB, shareable=False, address=address))
    return found[:MOST_DEVICES]


def _why_not(root: Path, address: str, group: str | None, taken: Collection[str]) -> str:
    device = root / _DEVICES / address
    if not group:
        return "it is in no IOMMU group"
    if group in taken:
        return f"another device of its IOMMU group {group} is offered"
    if _serves_others(device):
        return "it has virtual functions, which are offered in its place"
    for other in sorted({address, *_members(root, group)}):
        if link_name(root / _DEVICES / other / "driver") == "vfio-pci":
            continue
        kind = read_number(root / _DEVICES / other / "class", 16)
        if other == address or kind is None or kind >> 16 != _BRIDGE:
            return f"{other} of its IOMMU group {group} is not bound to vfio-pci"
    return ""


def _members(root: Path, group: str) -> set[str]:
    """Return the devices of a group by both of sysfs' accounts, should one leave out any."""
    bus = root / _DEVICES
    linked = {
        address
        for address in names_in(bus) or ()
        if link_name(bus / address / "iommu_group") == group
    }
    return linked | set(names_in(root / "sys/kernel/iommu_groups" / group / "devices") or ())


def _model(device: Path) -> str | None:
    vendor, product = read_number(device / "vendor", 16), read_number(device / "device", 16)
    if vendor is None or product is None or max(vendor, product) > 0xFFFF:
        return None
    return f"{vendor:04x}:{product:04x}"


def _is_gpu(device: Path) -> bool:
    kind = read_number(device / "class", 16)
    if kind is None or kind >> 16 != _DISPLAY:
        return False
    # Only VGA controllers can show the console, and only they say whether they do.
    return kind >> 8 != _VGA or number(read_text(device / "boot_vga")) == 0


def _serves_others(device: Path) -> bool:
    total, now = device / "sriov_totalvfs", device / "sriov_numvfs"
    return (total.exists() or now.exists()) and read_number(now) != 0
