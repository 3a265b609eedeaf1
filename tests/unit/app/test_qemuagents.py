"""How a QEMU agent is put together: its driver's settings, its default images, its amounts."""

import asyncio
import hashlib
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

pytest.importorskip("qemu.qmp")

from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.drivers.virtual import NoFences
from roost.app.options import AgentOptions, QemuOptions
from roost.app.qemuagents import qemu_driver
from roost.base.clock import RealClock
from roost.base.errors import InvalidRequest
from roost.base.units import GIB
from roost.wire.agentlink import AmountInfo, BootInfo, ImageInfo, Inventory


def composed(data: Path, **more: object) -> tuple[QemuSettings, Inventory]:
    """Return what the driver of some options is set to, and what it says of its host."""

    async def compose() -> tuple[QemuSettings, Inventory]:
        options = AgentOptions(name="h1", servers=("http://s",), data=data, driver="qemu", **more)  # type: ignore[arg-type]
        async with AsyncExitStack() as parts:
            driver = await qemu_driver(options, clock=RealClock(), fences=NoFences(), parts=parts)
            try:
                return driver.settings, await driver.inventory()
            finally:
                await driver.close()

    return asyncio.run(compose())


def test_the_driver_is_set_as_the_options_say(tmp_path: Path) -> None:
    qemu = QemuOptions(
        accel="tcg",
        cpu_model="EPYC",
        migrate_address="10.0.0.7",
        migrate_ports=(5000, 5009),
        migrate_tls=tmp_path,
        migrate_bandwidth_bytes=GIB,
        migrate_limit_s=60.0,
    )
    settings, _ = composed(tmp_path / "data", qemu=qemu)
    assert settings == QemuSettings(
        folder=tmp_path / "data",
        accel="tcg",
        cpu_model="EPYC",
        migrate_address="10.0.0.7",
        migrate_ports=(5000, 5009),
        migrate_tls=tmp_path,
        migrate_bandwidth_bytes=GIB,
        migrate_limit_s=60.0,
    )


def test_a_restart_gives_a_guest_the_grace_of_a_stop(tmp_path: Path) -> None:
    settings, _ = composed(tmp_path / "data", qemu=QemuOptions(accel="tcg"), stop_grace_s=90.0)
    assert settings.stop_grace_s == 90.0


def test_default_images_are_copied_into_the_store_by_digest(tmp_path: Path) -> None:
    kernel, initrd = tmp_path / "the kernel", tmp_path / "initrd.gz"
    kernel.write_bytes(b"kernel")
    initrd.write_bytes(b"initrd")
    qemu = QemuOptions(
        accel="tcg", default_kernel=kernel, default_initrd=initrd, default_cmdline="quiet"
    )
    settings, _ = composed(tmp_path / "data", qemu=qemu)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (kernel, initrd)]
    assert settings.default_boot == BootInfo(
        kernel=ImageInfo(f"sha256:{digests[0]}", kernel.as_uri()),
        initrd=ImageInfo(f"sha256:{digests[1]}", initrd.as_uri()),
        cmdline="quiet",
    )
    store = tmp_path / "data" / "images" / "sha256"
    assert (store / digests[0]).read_bytes() == b"kernel"


def test_a_default_that_is_larger_than_the_cache_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "disk.raw"
    image.write_bytes(bytes(4096))
    qemu = QemuOptions(accel="tcg", default_image=image, image_cache_bytes=100)
    with pytest.raises(InvalidRequest, match=r"disk\.raw' cannot be a default"):
        composed(tmp_path / "data", qemu=qemu)


def test_given_amounts_are_what_the_host_has(tmp_path: Path) -> None:
    _, found = composed(
        tmp_path / "data",
        qemu=QemuOptions(accel="tcg"),
        cpu_milli=500,
        memory_bytes=GIB,
        disk_bytes=2 * GIB,
    )
    assert (found.cpu_milli, found.memory_bytes) == (AmountInfo(500), AmountInfo(GIB))
    assert (found.disk_bytes, found.driver) == (AmountInfo(2 * GIB), "qemu")


def test_features_of_the_host_are_not_promised_to_emulated_guests(tmp_path: Path) -> None:
    _, found = composed(tmp_path / "data", qemu=QemuOptions(accel="tcg"))
    assert [each for each in found.capabilities if each.startswith("cpu:") or each == "kvm"] == []


def test_the_disk_of_a_host_with_shared_disks_is_the_shared_one(tmp_path: Path) -> None:
    here = tmp_path.stat().st_dev
    others = (path for path in map(Path, ("/dev/shm", "/tmp", "/")) if path.is_dir())
    shared = next((path for path in others if path.stat().st_dev != here), None)
    if shared is None:
        pytest.skip("there is one file system only")
    _, own = composed(tmp_path / "own", qemu=QemuOptions(accel="tcg"))
    _, found = composed(tmp_path / "data", qemu=QemuOptions(accel="tcg", shared_disks=shared))
    assert found.disk_bytes.total != own.disk_bytes.total
