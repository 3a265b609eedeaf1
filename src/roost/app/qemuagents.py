"""Puts together the QEMU driver of `roost agent --driver qemu`; `qemuchecks` has looked at it."""

import asyncio
import hashlib
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from roost.agent.drivers.base import Fences
from roost.agent.drivers.qemu.command import EMULATED_BYTES, choose_accel
from roost.agent.drivers.qemu.driver import QemuDriver
from roost.agent.drivers.qemu.kvmprobe import kvm_executes
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.machine.hostfacts import Given, HostReader
from roost.app.options import AgentOptions, QemuOptions
from roost.base import private
from roost.base.clock import Clock
from roost.base.errors import InvalidRequest
from roost.hostkit.failures import DriverError
from roost.hostkit.images.images import Images
from roost.wire.agentlink import BootInfo, ImageInfo

log = logging.getLogger("roost.agent")


async def qemu_driver(
    options: AgentOptions, *, clock: Clock, fences: Fences, parts: AsyncExitStack
) -> QemuDriver:
    """Return the driver of a host; its default images are in the host's store then.

    What outlives the driver is closed by `parts`.
    """
    qemu, data = options.qemu, options.data.absolute()
    images = Images(
        data / "images",
        clock=clock,
        size_limit=qemu.image_cache_bytes,
        allowed=(*qemu.image_from, *(path.as_uri() for path in _default_files(qemu))),
    )
    parts.push_async_callback(images.close)
    accel = await _usable_accel(qemu, clock)
    settings = QemuSettings(
        folder=data,
        accel=accel,
        binary=qemu.binary,
        cpu_model=qemu.cpu_model,
        bridges=qemu.bridges,
        count_flows=qemu.count_flows,
        disk_bytes_s=qemu.disk_bytes_s,
        disk_iops=qemu.disk_iops,
        run_as=qemu.run_as,
        shared_disks=qemu.shared_disks,
        default_boot=await _default_boot(qemu, images),
        stop_grace_s=options.stop_grace_s,  # the one of a plain stop
        migrate_address=qemu.migrate_address,
        migrate_ports=qemu.migrate_ports,
        migrate_tls=qemu.migrate_tls,
        migrate_bandwidth_bytes=qemu.migrate_bandwidth_bytes,
        migrate_limit_s=qemu.migrate_limit_s,
    )
    private.make_folder(settings.vms)
    return QemuDriver(
        settings,
        clock=clock,
        images=images,
        fences=fences,
        host=HostReader(
            qemu.shared_disks or settings.vms,
            given=Given(options.cpu_milli, options.memory_bytes, options.disk_bytes),
            pci=qemu.pci,
            # Under emulation, or with a model of its own, a guest's processor is not the host's.
            beside_bytes=EMULATED_BYTES if accel == "tcg" else 0,
            features=accel == "kvm" and qemu.cpu_model in ("", "host"),
        ),
    )


async def _usable_accel(qemu: QemuOptions, clock: Clock) -> Literal["kvm", "tcg"]:
    """Return the accelerator that executes guests here; refuse KVM that was demanded in vain."""
    if choose_accel(qemu.accel) == "tcg":
        return "tcg"
    if await kvm_executes(qemu.binary, clock):
        return "kvm"
    if qemu.accel == "kvm":
        raise InvalidRequest(
            "--accel kvm: /dev/kvm can be opened, but a guest that was tried under it did not boot",
            hint="Maybe nested virtualisation is off; --accel tcg emulates.",
        )
    log.warning("KVM does not execute guests on this machine: they are emulated (TCG)")
    return "tcg"


async def _default_boot(qemu: QemuOptions, images: Images) -> BootInfo | None:
    if qemu.default_image is None and qemu.default_kernel is None:
        return None
    return BootInfo(
        image=await _stored(qemu.default_image, images),
        kernel=await _stored(qemu.default_kernel, images),
        initrd=await _stored(qemu.default_initrd, images),
        cmdline=qemu.default_cmdline,
    )


async def _stored(path: Path | None, images: Images) -> ImageInfo | None:
    """Copy a file of the operator's into the store; its address is kept, should it be evicted."""
    if path is None:
        return None
    try:
        digest = await asyncio.to_thread(_digest, path)
        image = ImageInfo(f"sha256:{digest}", path.as_uri())
        await images.fetch(image)
    except (OSError, DriverError) as error:
        raise InvalidRequest(f"{str(path)!r} cannot be a default: {error}") from error
    return image


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _default_files(qemu: QemuOptions) -> Iterator[Path]:
    for path in (qemu.default_image, qemu.default_kernel, qemu.default_initrd):
        if path is not None:
            yield path
