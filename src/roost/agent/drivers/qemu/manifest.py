"""What is written down of one VM, in its folder, so that a new agent knows it again.

`manifest.json` is replaced whole and forced to disk; the one before stays as `manifest.before`.
A manifest that is broken or missing makes no VM absent: a QEMU that runs in the folder is found
by its command line (`find_running`), and what no copy tells is `unknown`.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from roost.agent.drivers.qemu.arrivals import is_marked
from roost.agent.drivers.qemu.process import Identity
from roost.agent.fencing import guard
from roost.hostkit.files import file_name, write_whole
from roost.wire.agentlink import DesiredVM, ImageInfo

#: What tells the sets of devices apart on a command line: a device, and the seed's node.
WATCHDOG, SEED_NODE = "i6300esb", "seed0"

NAME, BEFORE = "manifest.json", "manifest.before"

#: run: the VM is this host's. incoming: a copy that waits or was received and is not landed yet.
#: moved: it has left. While it is sent the role stays `run`; QEMU tells the rest.
Role = Literal["run", "incoming", "moved"]
#: none: no disk was made yet. unknown: nobody knows any more, so nothing may be made over it.
Storage = Literal["none", "local", "shared", "unknown"]


class Shape(Struct, frozen=True, omit_defaults=True):
    """What a QEMU process was started with; both ends of a live move must have the same."""

    vcpus: int
    most_vcpus: int
    memory_bytes: int
    machine: str = ""  # by its version, such as pc-i440fx-7.2; empty: as the settings name it
    devices: int = 0  # which set of devices it has beside those that orders ask for, see `command`
    seed: bool = False  # it has a seed although neither its set nor its order says so any more


class Manifest(Struct, omit_defaults=True, kw_only=True):
    """One VM. `process` None: it was stopped; a process that is dead has crashed."""

    order: DesiredVM  # as last carried out
    role: Role = "run"
    process: Identity | None = None
    shape: Shape | None = None  # of the process, or of the last one
    storage: Storage = "none"
    disk_bytes: int = 0  # the size that the disk has
    image: ImageInfo | None = None  # what the disk lies over; it stays so whatever is ordered
    restarts: int | None = None  # carried out; None: nobody knows
    reason: str = ""  # why it is stopped
    arrived: bool = False  # it came by a move and has, or had, leave to execute
    endpoint: dict[str, str] = {}  # where an incoming copy waits
    note: str = ""  # what waits for the next boot


class Read(NamedTuple):
    """What a folder tells. `whole` is False when `manifest` is an older copy or missing."""

    manifest: Manifest | None
    whole: bool


def folder_name(vm_id: str) -> str:
    """Return the name of a VM's folder: harmless whatever the id is."""
    return f"{file_name(vm_id).removesuffix('.json')}.vm"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest durably; the one before is kept."""
    with suppress(FileNotFoundError):
        before = (folder / NAME).read_bytes()
        if _decode(before) is not None:  # a broken one must not replace a good copy
            write_whole(folder / BEFORE, before, durable=False)
    write_whole(folder / NAME, msgspec.json.encode(manifest))


def read_manifest(folder: Path) -> Read:
    """Read the manifest, or the copy before it when it is broken."""
    now = _load(folder / NAME)
    found = now or _load(folder / BEFORE)
    if found is not None and found.role == "incoming" and not found.arrived:
        found.arrived = is_marked(folder)  # which is written first
    return Read(found, now is not None)


class Found(NamedTuple):
    """A QEMU that runs in a VM's folder, and what its command line tells of the VM."""

    identity: Identity
    vm_id: str
    name: str
    shape: Shape


def find_running(vms: Path) -> dict[str, Found]:
    """Return the QEMUs of a host by the names of their folders, from every process there is."""
    found: dict[str, Found] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            argv = Path(entry.path, "cmdline").read_bytes().decode(errors="replace").split("\0")
            options = _options(_after(argv, "-name"))
            kind, _, name = options["process"].partition(":")
            if kind != "roost" or not (vms / name).samefile(f"{entry.path}/cwd"):
                continue
            started = guard.started_at(int(entry.name))
            if started is None or guard.is_gone(int(entry.name), started):
                continue
            smp = _options(_after(argv, "-smp"))
            memory = int(_after(argv, "-m").removesuffix("M")) << 20
            found[name] = Found(
                Identity(int(entry.name), started, guard.boot_id()),
                _options(_after(argv, "-smbios"))["serial"],
                options["guest"],
                Shape(
                    int(smp["cpus"]),
                    int(smp["maxcpus"]),
                    memory,
                    _after(argv, "-machine").partition(",")[0],
                    devices=_devices(argv),
                ),
            )
        except (OSError, ValueError, KeyError):
            continue  # gone meanwhile, or not ours
    return found


def recovered(found: Found) -> Manifest:
    """Return what the command line alone tells of a VM; orders complete it."""
    order = DesiredVM(
        id=found.vm_id,
        name=found.name,
        project="",
        generation=0,
        power="running",
        cpu_milli=found.shape.vcpus * 1000,
        memory_bytes=found.shape.memory_bytes,
        disk_bytes=0,
    )
    return Manifest(order=order, process=found.identity, shape=found.shape, storage="unknown")


def _devices(argv: list[str]) -> int:
    if not any(WATCHDOG in word for word in argv):
        return 0
    # With user data the seed is in every set, and either number means the same machine.
    return 2 if any(SEED_NODE in word for word in argv) else 1


def _after(argv: list[str], option: str) -> str:
    return argv[argv.index(option) + 1]


def _options(text: str) -> dict[str, str]:
    """Read a=b,c=d where a comma in a value is doubled."""
    parts = text.replace(",,", "\0").split(",")
    pairs = (part.partition("=")[::2] for part in parts)
    return {key: value.replace("\0", ",") for key, value in pairs}


def _load(path: Path) -> Manifest | None:
    try:
        return _decode(path.read_bytes())
    except OSError:
        return None


def _decode(data: bytes) -> Manifest | None:
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError:
        return None
