"""From an order to a QEMU that stands still: files made, process started, all written down.

Nothing executes here. The order of things makes a crash of the agent harmless at every point: the
disk is made before it is written down as made, the manifest names the process before the guest may
execute, and the fence guard has its recipe by then. `launch` also starts incoming copies.
"""

import asyncio
import os
import pwd
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from roost.agent.drivers.base import Fences
from roost.agent.drivers.qemu.cells import bind_threads, nodes_of
from roost.agent.drivers.qemu.command import (
    BARE_SEED,
    DEVICES,
    DISK,
    DISK_DEVICE,
    EMULATED_BYTES,
    MIB,
    SEED,
    Files,
    choose_accel,
    command,
    shape_of,
)
from roost.agent.drivers.qemu.disks import (
    convert_disk,
    disk_info,
    grow_disk,
    image_format,
    make_disk,
)
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.machines import resolve_machine
from roost.agent.drivers.qemu.manifest import Manifest, Role, Shape, Storage, folder_name
from roost.agent.drivers.qemu.monitor import GONE, SOCKET, Monitor
from roost.agent.drivers.qemu.process import log_tail, spawn
from roost.agent.drivers.qemu.seed import write_seed
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.drivers.qemu.taps import open_taps
from roost.base import private
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.hostkit.machine.limitgroups import LimitGroups, Limits
from roost.wire.agentlink import BootInfo, DesiredVM, DeviceInfo, ImageInfo

_POLL_S = 0.01
#: What a QEMU needs beside its guest under KVM, and what may go beyond any reckoning: page tables,
#: buffers of the network and of moves, the page cache of its disk.
_BESIDE_BYTES, _SPARE_BYTES = 128 * MIB, 256 * MIB
_BESIDE_CPU_MILLI = 100
#: The device that has the disk: the one on the PCI bus only carries it.
_DISK_BACKEND = f"/machine/peripheral/{DISK_DEVICE}/virtio-backend"


class Images(Protocol):
    """Where images come from; `roost.hostkit.images.images` has the real ones."""

    async def fetch(self, image: ImageInfo, vm_id: str = "") -> Path:
        """Return the file of an image, verified, and keep it for this VM."""

    async def unpin(self, vm_id: str) -> None:
        """Unpin the images of a destroyed VM."""

    async def retain(self, vm_ids: Iterable[str]) -> None:
        """Unpin the images of all VMs but these."""


@dataclass(frozen=True)
class Parts:
    """What every VM of one host is started with."""

    settings: QemuSettings
    clock: Clock
    images: Images
    fences: Fences
    devices: Callable[[], Awaitable[list[DeviceInfo]]]  # at the positions of the inventory
    nodes: Callable[[], Awaitable[list[int]]]  # the kernel's numbers of the NUMA cells
    groups: LimitGroups  # where the limits of a VM are set


async def launch(
    parts: Parts,
    handle: VMHandle,
    vm: DesiredVM,
    *,
    role: Role = "run",
    incoming: bool = False,
    shape: Shape | None = None,
) -> Monitor:
    """Start the QEMU of an order, paused, and return its connection.

    No other process of this VM may be alive. An incoming copy waits for `migrate-incoming`; its
    `shape` is that of the source. Raises DriverError with QEMU's own words when it does not start.
    """
    settings = parts.settings
    accel = choose_accel(settings.accel)
    boot_of(settings, vm)
    shape = shape or await boot_shape(settings, vm, handle.manifest)
    manifest = Manifest(order=vm, role=role, restarts=vm.restarts, shape=shape)
    if role == "incoming" and not incoming and handle.manifest is not None:
        manifest.arrived = handle.manifest.arrived  # it came by a cold move, and boots
    manifest = _with_disk(manifest, handle.manifest)
    await asyncio.to_thread(_make_folder, handle.folder)
    await handle.save(manifest)  # before anything else is in the folder
    files = await make_files(parts, handle, manifest, incoming=incoming)
    argv = command(vm, files, settings, shape=shape, accel=accel, incoming=incoming)
    await asyncio.to_thread(give_files, handle.folder, files, settings.run_as)
    await handle.disconnect()
    (handle.folder / SOCKET).unlink(missing_ok=True)
    process = await spawn(argv, handle.folder, handle.ended)
    handle.hold(process)
    if process is None:
        raise _failed(handle)
    await handle.note(process=process.identity)
    limits = limits_of(shape, vm, accel)
    groups, pid = parts.groups, process.identity.pid
    await asyncio.to_thread(groups.put, handle.folder.name, pid, limits)
    protect(parts, handle, vm)
    monitor = await _answering(parts, handle)
    if files.disk is not None and settings.limits_disk:
        await limit_disk(settings, monitor)
    if files.nodes:
        await asyncio.to_thread(bind_threads, process.identity.pid, files.nodes)
    return monitor


async def limit_disk(settings: QemuSettings, monitor: Monitor) -> None:
    """Limit what a guest reads and writes on its disk, or lift a limit that it had.

    QEMU itself holds the guest back, so the limit needs no control group and holds on every host,
    and copying the disk in a move is not counted.
    """
    given = {"bps": settings.disk_bytes_s, "iops": settings.disk_iops}
    apart = dict.fromkeys(("bps_rd", "bps_wr", "iops_rd", "iops_wr"), 0)
    await monitor.execute("block_set_io_throttle", {"id": _DISK_BACKEND, **given, **apart})


def give_files(folder: Path, files: Files, user: str) -> None:
    """Let QEMU's own user reach its folder and open its disk again; nothing else is given to it."""
    if not user:
        return
    try:
        entry = pwd.getpwnam(user)
        os.chown(folder, -1, entry.pw_gid)
        folder.chmod(private.GIVEN_FOLDER)
        if files.disk is not None:
            os.chown(folder / files.disk, entry.pw_uid, entry.pw_gid)
    except (KeyError, OSError) as error:
        text = f"the files in {folder} cannot be given to the user {user}: {error}"
        raise DriverError("permanent", "not_given", text) from error


def limits_of(shape: Shape, vm: DesiredVM, accel: str) -> Limits:
    """Return what a VM's QEMU may take: the guest's amounts, and what it needs beside them."""
    beside = EMULATED_BYTES if accel == "tcg" else _BESIDE_BYTES
    memory = shape.memory_bytes + shape.memory_bytes // 16 + beside + _SPARE_BYTES
    # A tenth more of cpu, for QEMU's own threads: disk, network, moves.
    return Limits(vm.cpu_milli + max(_BESIDE_CPU_MILLI, vm.cpu_milli // 10), memory)


async def boot_shape(settings: QemuSettings, vm: DesiredVM, before: Manifest | None) -> Shape:
    """Return what a VM boots with: it keeps the machine that it was made with.

    A VM with an image has a seed even if nobody gave it user data: by that it learns its name, and
    that it is not the VM which the image was made of.
    """
    kept = before.shape.machine if before is not None and before.shape is not None else ""
    machine = kept or await asyncio.to_thread(resolve_machine, settings.binary, settings.machine)
    boot = vm.boot or settings.default_boot
    # Not where it makes no difference: agents that do not know this set receive no VM with it.
    bare = boot is not None and boot.image is not None and not boot.user_data
    return replace(shape_of(vm), machine=machine, devices=BARE_SEED if bare else DEVICES)


def protect(parts: Parts, handle: VMHandle, vm: DesiredVM) -> None:
    """Store the fence guard's recipe of a VM that may run elsewhere; else remove it."""
    if vm.restart == "elsewhere" and handle.process is not None:
        parts.fences.put(vm.id, handle.process.identity.recipe(handle.folder))
    elif vm.restart == "here":
        parts.fences.drop(vm.id)


async def make_files(
    parts: Parts, handle: VMHandle, manifest: Manifest, *, incoming: bool = False
) -> Files:
    """Get images, disk, seed and taps ready, and write down what was made."""
    vm = manifest.order
    fetch = partial(parts.images.fetch, vm_id=vm.id)
    boot = boot_of(parts.settings, vm)
    kernel = await fetch(boot.kernel) if boot.kernel is not None else None
    initrd = await fetch(boot.initrd) if boot.initrd is not None else None
    disk = None
    if vm.disk_bytes or boot.image is not None or manifest.storage in ("local", "shared"):
        disk, manifest = await _disk(parts, handle, manifest, boot.image, incoming)
    backing = await fetch(manifest.image) if manifest.image is not None else None
    seed = None
    if has_seed(boot, manifest.shape):
        seed = Path(SEED)
        await asyncio.to_thread(write_seed, handle.folder / SEED, replace(vm, boot=boot))
    if manifest != handle.manifest:
        await handle.save(manifest)
    return Files(
        kernel=kernel,
        initrd=initrd,
        disk=disk,
        backing=backing,
        backing_format=await image_format(backing) if backing else "raw",
        seed=seed,
        taps=await open_taps(vm, parts.settings.bridges),
        devices=await _addresses(parts, vm),
        nodes=nodes_of(vm, await parts.nodes()) if vm.cells else (),
    )


def has_seed(boot: BootInfo, shape: Shape | None) -> bool:
    """Return whether a VM that boots so, as a machine of this shape, has a seed."""
    return bool(boot.user_data) or (
        shape is not None and (shape.seed or shape.devices >= BARE_SEED)
    )


def boot_of(settings: QemuSettings, vm: DesiredVM) -> BootInfo:
    """Return what a VM boots, or the host's default; raises `no_image` without either."""
    boot = vm.boot or settings.default_boot
    if boot is not None and (boot.image is not None or boot.kernel is not None):
        return boot
    raise DriverError(
        "permanent",
        "no_image",
        f"nothing says what {vm.name} boots. Give it an image or a kernel (boot), or give this "
        "host a default to boot",
    )


def disk_path(settings: QemuSettings, vm_id: str, storage: Storage) -> Path:
    """Return where a VM's disk is, as its QEMU opens it."""
    if storage == "shared":
        assert settings.shared_disks is not None
        return settings.shared_disks / f"{folder_name(vm_id)}.qcow2"
    return Path(DISK)


def owned_disk(settings: QemuSettings, manifest: Manifest) -> Path | None:
    """Return the disk outside the VM's folder that goes with the VM: never that of a copy."""
    owns = manifest.role == "run" or (manifest.role == "incoming" and manifest.arrived)
    if manifest.storage != "shared" or settings.shared_disks is None or not owns:
        return None
    return disk_path(settings, manifest.order.id, "shared")


def _with_disk(manifest: Manifest, before: Manifest | None) -> Manifest:
    """Record a VM's disk in its manifest, unless it belongs to an incomplete copy."""
    half = before is not None and before.role == "incoming" and not before.arrived
    if before is None or (half and before.storage == "local"):
        return manifest
    return replace(
        manifest, storage=before.storage, disk_bytes=before.disk_bytes, image=before.image
    )


def _make_folder(folder: Path) -> None:
    try:
        private.make_folder(folder)
    except OSError as error:
        raise DriverError(
            "transient", "not_written", f"{folder} cannot be made: {error}"
        ) from error


async def _disk(
    parts: Parts, handle: VMHandle, manifest: Manifest, image: ImageInfo | None, incoming: bool
) -> tuple[Path, Manifest]:
    """Make the disk, or make it larger; returns how QEMU opens it."""
    vm, storage = manifest.order, manifest.storage
    if storage == "unknown":
        raise DriverError("permanent", "disk_unknown", f"nobody knows where {vm.name}'s disk is")
    if incoming and storage == "local":
        storage = "none"  # what an earlier copy has left here is stale
    made = storage != "none"
    if not made:
        storage = "shared" if parts.settings.shared_disks is not None else "local"
        manifest = replace(manifest, image=None, disk_bytes=0)
        # A disk that is not written down as made has never been used, or is such a copy's.
        await asyncio.to_thread((handle.folder / DISK).unlink, missing_ok=True)
    path = disk_path(parts.settings, vm.id, storage)
    whole = handle.folder / path
    there = await asyncio.to_thread(whole.exists)
    if not there and (made or (incoming and storage == "shared")):
        raise DriverError("permanent", "disk_missing", f"the disk {whole} of {vm.name} is gone")
    if not there:
        await _fill_disk(parts, handle, vm, whole, image)
    elif not incoming:
        await grow_disk(whole, vm.disk_bytes)
    if not made and storage == "local":
        manifest = replace(manifest, image=image)
    size = (await disk_info(whole)).virtual_bytes if not made else manifest.disk_bytes
    size = max(vm.disk_bytes, size)
    note = f"a disk never shrinks: it keeps its {size // MIB} MiB" if size > vm.disk_bytes else ""
    return path, replace(manifest, storage=storage, disk_bytes=size, note=note)


async def _fill_disk(
    parts: Parts,
    handle: VMHandle,
    vm: DesiredVM,
    path: Path,
    image: ImageInfo | None,
) -> None:
    """Make a disk that begins as the image.

    One that is shared holds all of it, as other hosts keep their images elsewhere.
    """
    backing = await parts.images.fetch(image, vm.id) if image is not None else None
    if backing is None or path.parent == handle.folder:
        await make_disk(path, vm.disk_bytes, backing)
    else:
        over = handle.folder / "filling.qcow2"
        await asyncio.to_thread(over.unlink, missing_ok=True)
        await make_disk(over, vm.disk_bytes, backing)
        await convert_disk(over, path)
        await asyncio.to_thread(over.unlink, missing_ok=True)


async def _addresses(parts: Parts, vm: DesiredVM) -> tuple[str, ...]:
    if not vm.devices:
        return ()
    devices = await parts.devices()
    try:
        return tuple(devices[number].address for number in vm.devices)
    except IndexError:
        raise DriverError(
            "permanent", "no_device", f"{vm.name} needs devices {vm.devices}; not all are here"
        ) from None


async def _answering(parts: Parts, handle: VMHandle) -> Monitor:
    """Wait until QEMU answers on QMP; the error quotes its log when it ends instead."""
    clock, give_up_at = parts.clock, parts.clock.monotonic() + parts.settings.start_s
    while True:
        try:
            return await handle.reach(parts.settings.start_s)
        except DriverError as error:
            if not handle.is_alive:
                raise _failed(handle) from error
            if error.code != GONE or clock.monotonic() >= give_up_at:
                raise
        await clock.sleep(_POLL_S)


def _failed(handle: VMHandle) -> DriverError:
    words = log_tail(handle.folder)
    if 'Failed to get "' in words or "host forwarding" in words or "in use" in words:
        return DriverError("transient", "in_use", f"QEMU does not start: {words}")
    if "annot allocate memory" in words or "annot set up guest memory" in words:
        return DriverError("capacity", "no_memory", f"QEMU does not start: {words}")
    return DriverError("permanent", "qemu_failed", f"QEMU does not start: {words}")
