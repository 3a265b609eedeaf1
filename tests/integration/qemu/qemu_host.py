"""One host with the QEMU driver for tests: software emulation, the small guest, and faults."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.qemu.driver import QemuDriver
from roost.agent.drivers.qemu.manifest import Manifest, find_running, folder_name, read_manifest
from roost.agent.drivers.qemu.process import Identity, is_alive
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.fencing.recipes import FolderFences
from roost.agent.machine.hostfacts import HostReader
from roost.base.clock import RealClock
from roost.hostkit.images.images import Images
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.wire.agentlink import BootInfo, DesiredVM
from tests.guest import boot_info

MIB = 1 << 20
PATIENCE_S = 60.0


def order(vm_id: str = "vm-1", generation: int = 1, **changes: object) -> DesiredVM:
    """Return an order for a small VM without a disk."""
    given: dict[str, object] = {
        "id": vm_id,
        "name": vm_id,
        "project": "default",
        "generation": generation,
        "power": "running",
        "cpu_milli": 1000,
        "memory_bytes": 112 * MIB,
        "disk_bytes": 0,
    }
    return DesiredVM(**{**given, **changes})  # type: ignore[arg-type]


class QemuHost:
    """A folder, and drivers on it one after the other."""

    def __init__(self, folder: Path, *, boot: BootInfo | None = None, **changes: object) -> None:
        self.folder = folder
        self.boot = boot or boot_info()
        given: dict[str, object] = {"accel": "tcg", "stop_grace_s": 0.2, "ask_s": 5.0}
        settings = QemuSettings(folder, default_boot=self.boot)
        self.settings = replace(settings, **{**given, **changes})
        folder.mkdir(parents=True, exist_ok=True)
        self.fences = FolderFences(folder)
        #: None by default: they would stay behind when a test's guests are killed.
        self.groups = LimitGroups("none", root=folder)
        self.images = Images(folder / "images", clock=RealClock(), allowed=["file:///"])

    def driver(self, *, reader: HostReader | None = None, **changes: object) -> QemuDriver:
        """Return a new driver; the one before must be closed."""
        return QemuDriver(
            replace(self.settings, **changes),
            clock=RealClock(),
            images=self.images,
            fences=self.fences,
            host=reader,
            groups=self.groups,
        )

    @asynccontextmanager
    async def opened(
        self, *, reader: HostReader | None = None, **changes: object
    ) -> AsyncIterator[QemuDriver]:
        """Give a driver, and close it."""
        driver = self.driver(reader=reader, **changes)
        try:
            yield driver
        finally:
            await driver.close()

    def vm_folder(self, vm_id: str) -> Path:
        """Return the folder of a VM."""
        return self.settings.vms / folder_name(vm_id)

    def manifest(self, vm_id: str) -> Manifest:
        """Return what is written down of a VM."""
        manifest, whole = read_manifest(self.vm_folder(vm_id))
        assert manifest is not None
        assert whole
        return manifest

    def process(self, vm_id: str) -> Identity:
        """Return the QEMU that runs a VM."""
        return find_running(self.settings.vms)[folder_name(vm_id)].identity

    async def kill(self, vm_id: str, sign: int = signal.SIGKILL) -> None:
        """Send a signal to a VM's QEMU; a deadly one is waited for."""
        process = self.process(vm_id)
        os.kill(process.pid, sign)
        if sign == signal.SIGKILL:
            await until(lambda: not is_alive(process) and _threads(process.pid) <= 1)

    def end_all(self) -> None:
        """Kill every QEMU that a test has left behind, by its pid."""
        asyncio.run(self.images.close())
        if not self.settings.vms.exists():
            return
        for found in find_running(self.settings.vms).values():
            with suppress(ProcessLookupError):
                os.kill(found.identity.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(found.identity.pid, 0)


def _threads(pid: int) -> int:
    """Return how many threads a process has; while one is left its connections are open."""
    with suppress(FileNotFoundError):
        return len([*Path(f"/proc/{pid}/task").iterdir()])
    return 0


async def until(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)


async def says(driver: QemuDriver, vm_id: str, words: str) -> str:
    """Wait until a guest has written some words to its console; return all of it."""
    async with asyncio.timeout(PATIENCE_S):
        while words not in (text := (await driver.console(vm_id, None, 1 << 20)).text):
            await asyncio.sleep(0.02)
    return text


async def becomes(driver: QemuDriver, vm_id: str, state: str) -> LocalVM:
    """Wait until a VM is in a state."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await driver.look(vm_id)) is None or found.state != state:
            await asyncio.sleep(0.02)
    return found


def raw_manifest(host: QemuHost, vm_id: str) -> dict[str, object]:
    """Return a manifest as plain data."""
    return msgspec.json.decode((host.vm_folder(vm_id) / "manifest.json").read_bytes())
