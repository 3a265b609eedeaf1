"""What the driver holds of one VM in this process: folder, manifest, process and QMP connection.

All of it can be made again from the folder; letting go of it changes nothing for the VM. `lock`
keeps orders for one VM apart. Whoever cuts a VM off does not wait for it: he counts up `cuts`, and
an order that lets the VM execute compares that number before it does so.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from roost.agent.drivers.qemu.manifest import Manifest, write_manifest
from roost.agent.drivers.qemu.monitor import GONE, SILENT, Event, Monitor
from roost.agent.drivers.qemu.process import Identity, Process
from roost.agent.drivers.qemu.sight import Told
from roost.hostkit.failures import DriverError

#: Events after which the VM may be in another state.
TELLING = frozenset(
    {"SHUTDOWN", "STOP", "RESUME", "RESET", "BLOCK_IO_ERROR", "MIGRATION", "GUEST_PANICKED"}
)


class VMHandle:
    """One VM of this host."""

    def __init__(self, vm_id: str, folder: Path, changed: Callable[[str], None]) -> None:
        self.id = vm_id
        self.folder = folder
        self.manifest: Manifest | None = None
        self.broken = False  # there is a folder of it, and nothing readable in it
        self.process: Process | None = None
        self.lock = asyncio.Lock()
        self.cuts = 0
        self.cut_reason = ""
        #: Called with every event of QEMU; must not raise.
        self.listeners: list[Callable[[Event], None]] = []
        self._changed = changed
        self._monitor: Monitor | None = None
        self._connecting: asyncio.Task[Monitor] | None = None
        self._writing = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()
        self._is_starting = False

    @property
    def is_alive(self) -> bool:
        """Return whether its QEMU executes."""
        return self.process is not None and not self.process.is_gone

    @property
    def is_here(self) -> bool:
        """Return whether there is anything of it on this host, readable or not."""
        return self.manifest is not None or self.broken

    # The manifest

    async def save(self, manifest: Manifest) -> None:
        """Write the manifest durably."""
        await self._change(lambda _: manifest)

    async def note(self, **changes: Any) -> None:
        """Change fields of the manifest, durably."""

        def change(manifest: Manifest | None) -> Manifest:
            if manifest is None:
                raise DriverError("transient", "vm_unreadable", f"{self.id} has no manifest")
            return replace(manifest, **changes)

        await self._change(change)

    async def note_end(self, process: Identity, reason: str) -> None:
        """Record in the manifest why a QEMU process has ended, unless another replaced it."""

        def change(manifest: Manifest | None) -> Manifest:
            if manifest is None or manifest.process != process:
                raise DriverError("transient", "not_now", f"{self.id} is being started")
            return replace(manifest, process=None, reason=reason)

        with suppress(DriverError):
            await self._change(change)

    async def _change(self, change: Callable[[Manifest | None], Manifest]) -> None:
        task = asyncio.create_task(self._write(change))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        await asyncio.shield(task)  # half a write is worse than one that nobody waits for

    async def _write(self, change: Callable[[Manifest | None], Manifest]) -> None:
        async with self._writing:
            manifest = change(self.manifest)
            await asyncio.to_thread(_write, self.folder, manifest)
            self.manifest = manifest

    # The process

    def hold(self, process: Process | None) -> None:
        """Attach a QEMU process; an earlier handle is closed."""
        if self.process is not None:
            self.process.close()
        self.process = process

    def ended(self) -> None:
        """Record that the VM's QEMU has ended."""
        self.tell()

    def tell(self) -> None:
        """Notify the agent that the VM may have changed its state."""
        if not self._is_starting:
            self._changed(self.id)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Tell nobody of what QEMU does while an order starts it: the order itself ends in that.

        The end of a QEMU that does not start would be news, and news are a reason to carry out an
        order again that has failed for good, without a pause and without an end.
        """
        self._is_starting = True
        try:
            yield
        finally:
            self._is_starting = False
        self.tell()

    # QMP

    async def reach(self, within_s: float = 5.0) -> Monitor:
        """Return the connection to its QEMU, made anew if need be; raises as Monitor.connect."""
        if self._monitor is not None and self._monitor.is_open:
            return self._monitor
        if self._connecting is None or self._connecting.done():
            # One for all who ask at once: QEMU greets only one.
            self._connecting = asyncio.create_task(self._connect(within_s))
            self._connecting.add_done_callback(_look_at)
        return await asyncio.shield(self._connecting)

    async def told(self, within_s: float = 5.0) -> Told | None:
        """Ask QEMU what it does; None when there is no process. Raises when it does not answer."""
        if not self.is_alive:
            return None
        try:
            async with asyncio.timeout(within_s):
                return await self._ask(within_s)
        except TimeoutError:
            text = f"QEMU has not said within {within_s:g} s what it does"
            raise DriverError("transient", SILENT, text) from None
        except DriverError as error:
            if error.code == GONE and await self._ends_now():
                return None
            raise

    async def _ask(self, within_s: float) -> Told:
        monitor = await self.reach(within_s)
        status = await monitor.execute("query-status", within_s=within_s)
        moving = await monitor.execute("query-migrate", within_s=within_s)
        post_copy = False
        if moving.get("status") in ("completed", "failed", "cancelled"):
            # It may have ended between the two questions.
            status = await monitor.execute("query-status", within_s=within_s)
            if (moving["status"], status["status"]) == ("failed", "postmigrate"):
                post_copy = await _could_post_copy(monitor, within_s)
        return Told(str(status["status"]), str(moving.get("status", "")), post_copy)

    async def disconnect(self) -> None:
        """Close the QMP connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
            self._connecting = None
        if self._monitor is not None:
            await self._monitor.close()
            self._monitor = None

    async def let_go(self) -> None:
        """Close the QMP connection and the process handle; the VM runs on."""
        await self.disconnect()
        await asyncio.gather(*self._writes, return_exceptions=True)
        self.hold(None)

    async def _ends_now(self) -> bool:
        """Wait a moment for a QEMU to end that has closed its QMP socket."""
        return self.process is None or await self.process.wait_gone(0.5)

    async def _connect(self, within_s: float) -> Monitor:
        if self._monitor is not None:
            await self._monitor.close()
            self._monitor = None
        self._monitor = await Monitor.connect(self.folder, self._heard, within_s=within_s)
        return self._monitor

    def _heard(self, event: Event) -> None:
        for listener in list(self.listeners):
            listener(event)
        if event.name in TELLING:
            self.tell()


async def _could_post_copy(monitor: Monitor, within_s: float) -> bool:
    told = await monitor.execute("query-migrate-capabilities", within_s=within_s)
    return any(each["capability"] == "postcopy-ram" and each["state"] for each in told)


def _look_at(task: "asyncio.Task[Monitor]") -> None:
    """Retrieve the result of an attempt that perhaps nobody awaits, so that asyncio is quiet."""
    if not task.cancelled():
        task.exception()


def _write(folder: Path, manifest: Manifest) -> None:
    try:
        write_manifest(folder, manifest)
    except OSError as error:
        raise DriverError(
            "transient", "not_written", f"the manifest in {folder} cannot be written: {error}"
        ) from error
