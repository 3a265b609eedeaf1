"""The command line of one QEMU: a pure function of order, files, shape and settings.

Devices have fixed places on the PCI bus, and both ends of a live move use this one function, so
that their machines are alike. QEMU runs in the VM's folder; names without a slash are in it.
Always: started paused, kept after the guest's power-off, no devices but those named here.
"""

import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal
from uuid import UUID

from roost.agent.drivers.qemu.manifest import SEED_NODE, WATCHDOG, Shape, folder_name
from roost.agent.drivers.qemu.monitor import SOCKET
from roost.agent.drivers.qemu.settings import Accel, QemuSettings
from roost.hostkit.failures import DriverError
from roost.model.vm import mac_of
from roost.wire.agentlink import DesiredVM, NicInfo

CONSOLE, DISK, SEED = "console.log", "disk.qcow2", "seed.iso"
#: Names by which QMP knows the disk, its device, the balloon and the migration TLS object.
DISK_NODE, DISK_DEVICE, BALLOON = "disk0", "vda", "bal0"

MIB = 1 << 20
_MEMORY = "pc.ram"
MOST_VCPUS = 255

_DISK_SLOT, _SEED_SLOT, _BALLOON_SLOT, _RANDOM_SLOT, _NIC_SLOT, _HOST_SLOT = 3, 4, 5, 6, 8, 16
_WATCHDOG_SLOT = 7

#: The most that an emulated guest's QEMU keeps of translated code.
TRANSLATED_MIB = 128
#: What such a QEMU takes beside its guest's memory in all; 40 to 60 MiB are its own.
EMULATED_BYTES = (TRANSLATED_MIB + 64) * MIB

#: The sets of devices: 1 has pvpanic, by which a guest's kernel says that it has panicked, and a
#: watchdog; 2 also has a seed without user data. A VM has the set it was booted with until its next
#: boot; 0 is that of agents that knew none.
DEVICES, BARE_SEED = 1, 2


@dataclass(frozen=True, slots=True)
class Files:
    """What a VM's QEMU opens beside its own folder's files; all of it is there already."""

    kernel: Path | None = None
    initrd: Path | None = None
    disk: Path | None = None  # qcow2
    backing: Path | None = None  # the image below the disk
    backing_format: str = "raw"
    seed: Path | None = None
    taps: tuple[str, ...] = ()  # one for each card of mode tap
    devices: tuple[str, ...] = ()  # PCI addresses of host devices
    nodes: tuple[int, ...] = ()  # the host's NUMA nodes that its memory is bound to


def shape_of(vm: DesiredVM) -> Shape:
    """Return what to start an order with: whole vCPUs, whole MiB, and room to plug vCPUs in."""
    vcpus = min(MOST_VCPUS, max(1, -(-vm.cpu_milli // 1000)))
    memory = max(1, -(-vm.memory_bytes // MIB)) * MIB
    return Shape(vcpus, min(MOST_VCPUS, max(4, 2 * vcpus)), memory)


def choose_accel(asked: Accel, device: Path = Path("/dev/kvm")) -> Literal["kvm", "tcg"]:
    """Return the accelerator; KVM that was demanded and cannot be used is an error."""
    if asked == "tcg":
        return "tcg"
    if os.access(device, os.R_OK | os.W_OK):
        return "kvm"
    if asked == "auto":
        return "tcg"
    why = "there is no" if not device.exists() else "this user may not read and write"
    raise DriverError(
        "permanent",
        "no_kvm",
        f"KVM is demanded but {why} {device}. Maybe add the agent's user to the group kvm, or set "
        "the accelerator to auto or tcg",
    )


def command(
    vm: DesiredVM,
    files: Files,
    settings: QemuSettings,
    *,
    shape: Shape,
    accel: Literal["kvm", "tcg"],
    incoming: bool = False,
) -> list[str]:
    """Return the command line of a VM's QEMU; `incoming` lets it wait for `migrate-incoming`."""
    argv = [settings.binary, *_identity(vm), *_machine(settings, shape, accel)]
    argv += _memory(shape, files.nodes)
    argv += ["-qmp", f"unix:{SOCKET},server=on,wait=off"]
    argv += ["-chardev", f"file,id=con0,path={CONSOLE},append=on", "-serial", "chardev:con0"]
    argv += _boot(vm, files, settings)
    if files.disk is not None:
        argv += _disk(files.disk, files.backing, files.backing_format)
    if files.seed is not None:
        argv += _seed(files.seed)
    argv += _device("virtio-balloon-pci", BALLOON, _BALLOON_SLOT)
    argv += ["-object", _json(qom_type="rng-random", id="rng0", filename="/dev/urandom")]
    argv += _device("virtio-rng-pci", "random0", _RANDOM_SLOT, rng="rng0")
    argv += _nics(vm, files.taps)
    if shape.devices >= DEVICES:
        argv += ["-device", json.dumps({"driver": "pvpanic", "id": "panic0"})]
        argv += _device(WATCHDOG, "watchdog0", _WATCHDOG_SLOT)
        argv += ["-action", "panic=pause,watchdog=reset"]
    for number, address in enumerate(files.devices):
        argv += _device("vfio-pci", f"host{number}", _HOST_SLOT + number, host=address)
    if incoming:
        argv += ["-incoming", "defer"]
    return argv


def _identity(vm: DesiredVM) -> list[str]:
    uuid = UUID(bytes=blake2b(vm.id.encode(), digest_size=16).digest())
    return [
        "-name",
        f"guest={_escaped(vm.name)},process=roost:{folder_name(vm.id)}",
        "-uuid",
        str(uuid),
        "-smbios",
        f"type=1,manufacturer=roost,serial={_escaped(vm.id)}",
    ]


def _machine(settings: QemuSettings, shape: Shape, accel: str) -> list[str]:
    model = settings.cpu_model or ("host" if accel == "kvm" else "qemu64")
    return [
        "-machine",
        f"{shape.machine or settings.machine},suppress-vmdesc=on,memory-backend={_MEMORY}",
        "-accel",
        # What emulation keeps of translated code is QEMU's own memory, a gibibyte by default.
        accel if accel == "kvm" else f"tcg,tb-size={TRANSLATED_MIB}",
        "-cpu",
        model,
        "-smp",
        f"cpus={shape.vcpus},maxcpus={shape.most_vcpus}",
        "-m",
        f"{shape.memory_bytes // MIB}M",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-S",
        "-no-shutdown",
        "-sandbox",
        # To become another user is for good: it has no rights then to become a third one, and it
        # can start no program.
        "on,obsolete=deny,spawn=deny,resourcecontrol=deny,elevateprivileges="
        + ("allow" if settings.run_as else "deny"),
        *(["-runas", settings.run_as] if settings.run_as else []),
    ]


def _memory(shape: Shape, nodes: tuple[int, ...]) -> list[str]:
    memory: dict[str, object] = {"id": _MEMORY, "size": shape.memory_bytes}
    # Under the name that it has without this object: a host that binds nothing knows it by that.
    memory["x-use-canonical-path-for-ramblock-id"] = False
    if nodes:
        memory |= {"host-nodes": list(nodes), "policy": "bind"}
    return ["-object", _json(qom_type="memory-backend-ram", **memory)]


def _boot(vm: DesiredVM, files: Files, settings: QemuSettings) -> list[str]:
    if files.kernel is None:
        return []
    boot = vm.boot or settings.default_boot
    argv = ["-kernel", str(files.kernel)]
    if files.initrd is not None:
        argv += ["-initrd", str(files.initrd)]
    return [*argv, "-append", (boot.cmdline if boot else "") or "console=ttyS0"]


def _disk(disk: Path, backing: Path | None, backing_format: str) -> list[str]:
    node: dict[str, object] = {
        "driver": "qcow2",
        "node-name": DISK_NODE,
        "discard": "unmap",
        "file": {"driver": "file", "filename": str(disk), "discard": "unmap"},
    }
    # Given here and not left to the disk's header: another host keeps the image elsewhere, and
    # what an image itself names as its backing must never be opened.
    node["backing"] = None if backing is None else _image(backing, backing_format)
    device = {"drive": DISK_NODE, "bootindex": 1}  # 0 is that of a kernel that boots directly
    return [
        "-blockdev",
        json.dumps(node),
        *_device("virtio-blk-pci", DISK_DEVICE, _DISK_SLOT, **device),
    ]


def _image(path: Path, kind: str) -> dict[str, object]:
    file = {"driver": "file", "filename": str(path), "read-only": True}
    image: dict[str, object] = {"driver": kind, "read-only": True, "file": file}
    return {**image, "backing": None} if kind == "qcow2" else image


def _seed(seed: Path) -> list[str]:
    file = {"driver": "file", "filename": str(seed), "read-only": True}
    node = {"driver": "raw", "node-name": SEED_NODE, "read-only": True, "file": file}
    return [
        "-blockdev",
        json.dumps(node),
        *_device("virtio-blk-pci", "vdb", _SEED_SLOT, drive=SEED_NODE),
    ]


def _nics(vm: DesiredVM, taps: tuple[str, ...]) -> list[str]:
    argv: list[str] = []
    left = iter(taps)
    for number, nic in enumerate(vm.nics or [NicInfo()]):
        netdev: dict[str, object] = {"type": nic.mode, "id": f"net{number}"}
        if nic.mode == "tap":
            netdev |= {"ifname": next(left), "script": "no", "downscript": "no"}
        else:
            netdev["hostfwd"] = [{"str": _forward(each)} for each in nic.forward]
        argv += ["-netdev", json.dumps(netdev)]
        argv += _device(
            "virtio-net-pci",
            f"nic{number}",
            _NIC_SLOT + number,
            netdev=f"net{number}",
            mac=nic.mac or mac_of(vm.id, number),
            romfile="",  # else it would look for a network to boot from
        )
    return argv


def _forward(rule: str) -> str:
    protocol, at_host, at_vm = rule.split(":")
    return f"{protocol}:127.0.0.1:{int(at_host)}-:{int(at_vm)}"


def _device(driver: str, name: str, slot: int, **properties: object) -> list[str]:
    return [
        "-device",
        json.dumps({"driver": driver, "id": name, "addr": f"{slot:#x}", **properties}),
    ]


def _json(*, qom_type: str, **properties: object) -> str:
    return json.dumps({"qom-type": qom_type, **properties})


def _escaped(text: str) -> str:
    return text.replace(",", ",,")
