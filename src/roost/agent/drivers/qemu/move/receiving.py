"""The target's half of a move: a copy that waits, and takes over by itself once it has come whole.

Taking over is written down before the guest executes, so that afterwards anybody can tell whether
it ever did. It follows QEMU's own event within milliseconds, for the guest stands still meanwhile;
what an agent missed while it was away is decided again from what QEMU says when it is back.

    waits --all has come--> written down as arrived --> executes (unless it was paused)

Taking over and withdrawing exclude each other by `_Seat.lock`. `cont` is never sent to a copy that
still waits: QEMU would take it as leave to start by itself, and nothing would be written down.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from roost.agent.drivers.qemu import power
from roost.agent.drivers.qemu.arrivals import Mark, clear_mark, is_marked
from roost.agent.drivers.qemu.command import BARE_SEED, MIB, MOST_VCPUS, shape_of
from roost.agent.drivers.qemu.consoles import forget_earlier, keep_earlier
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import Parts, boot_shape, launch, protect
from roost.agent.drivers.qemu.manifest import Manifest, Shape
from roost.agent.drivers.qemu.monitor import Event, Monitor
from roost.agent.drivers.qemu.move.attendance import Attendance, line_of, read_line
from roost.agent.drivers.qemu.move.endpoints import Address, listen, parse, storage_id
from roost.agent.drivers.qemu.move.leaving import phase
from roost.agent.drivers.qemu.move.migrationtls import X509, add_credentials
from roost.agent.drivers.qemu.move.mirror import end_export, export_disk
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.drivers.qemu.sight import BROKEN, POST_COPY
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM

log = logging.getLogger(__name__)

_POLL_S = 0.002
_PATIENCE_S = 30.0
#: A source may have more memory than is ordered by now: so many times as much, and so much more.
_MOST_TIMES, _MOST_MORE_BYTES = 8, 1 << 30
_MACHINE = re.compile(r"[a-z0-9.+-]{1,60}")


@dataclass
class _Seat:
    """The resources of one incoming copy: its endpoint and its tasks."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    watched: bool = False
    shaped: bool = False  # its source has said what machine the VM is
    mark: Mark | None = None
    executes: asyncio.Event = field(default_factory=asyncio.Event)
    attendance: Attendance | None = None

    def close(self) -> None:
        """Release the endpoint and the mark of an incoming copy."""
        if self.attendance is not None:
            self.attendance.close()
            self.attendance = None
        self.executes.clear()
        self.shaped = False
        if self.mark is not None:
            self.mark.close()
            self.mark = None


class Receiving:
    """The copies that one host receives."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._seats: WeakKeyDictionary[VMHandle, _Seat] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Hosts whose agents are too old to say what machine a VM is: a stream of theirs failed.
        self._silent_sources: set[str] = set()
        # Of its own, so that a guest which stands still never waits for somebody's long work.
        self._writer = ThreadPoolExecutor(2, "arrivals")

    async def close(self) -> None:
        """Stop watching incoming copies; their QEMUs go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.shutdown()
        for seat in self._seats.values():
            seat.close()
        self._seats.clear()

    def forget(self, handle: VMHandle) -> None:
        """Release what is kept for a copy that is gone, or is the VM by now."""
        self._seat(handle).close()

    # Waiting

    async def prepare(self, handle: VMHandle, vm: DesiredVM) -> None:
        """Start the QEMU of an incoming copy, unless one of the same kind waits."""
        if self._waits(handle, vm):
            await handle.note(order=vm)
            protect(self._parts, handle, vm)
        else:
            await power.end(handle)
            self._seat(handle).close()
            await asyncio.to_thread(clear_mark, handle.folder)
            await asyncio.to_thread(forget_earlier, handle.folder)
            with handle.starting():
                await self._launch(handle, vm, await self._likely_shape(vm))
        await self.watch(handle)

    async def _likely_shape(self, vm: DesiredVM) -> Shape:
        """Return the machine that a source most likely has; if it is another, the source says so.

        Right, it saves the second start of QEMU. Agents of before machines were kept cannot say.
        """
        if vm.peer in self._silent_sources:
            return shape_of(vm)
        return await boot_shape(self._parts.settings, vm, None)

    async def _launch(self, handle: VMHandle, vm: DesiredVM, shape: Shape) -> None:
        """Start the QEMU of an incoming copy, at the addresses it had if it had any."""
        given = {}
        if handle.manifest is not None and handle.manifest.role == "incoming":
            given = handle.manifest.endpoint
        monitor = await launch(self._parts, handle, vm, role="incoming", incoming=True, shape=shape)
        try:
            endpoint = await self._open(handle, monitor, vm, given)
        except DriverError:
            await power.end(handle)
            raise
        await handle.note(endpoint=endpoint, note=waiting_words(shape, vm))

    async def _reshape(self, handle: VMHandle, shape: Shape) -> None:
        """Start the QEMU of a copy that waits anew, as a machine of the source's shape."""
        async with handle.lock, self._seat(handle).lock:
            manifest = handle.manifest
            if manifest is None or manifest.role != "incoming" or manifest.arrived:
                raise DriverError("permanent", "not_here", f"no copy of {handle.id} waits here")
            self._seat(handle).shaped = True
            self._silent_sources.discard(manifest.order.peer)
            if manifest.shape == shape:
                return
            check_shape(self._parts.settings, manifest.order, shape)
            told = await handle.told()
            if told is not None and (
                told.runstate != "inmigrate" or told.migration not in ("", "setup")
            ):
                text = f"the copy of {handle.id} is {told.runstate} ({told.migration}) already"
                raise DriverError("transient", "not_now", text)
            await power.end(handle)
            await self._launch(handle, manifest.order, shape)

    async def watch(self, handle: VMHandle) -> None:
        """Watch an incoming copy, and take over as soon as it is complete."""
        seat = self._seat(handle)
        if not seat.watched:
            seat.watched = True
            handle.listeners.append(lambda event: self._hear(handle, event))
        if seat.mark is None:
            seat.mark = await asyncio.to_thread(Mark, handle.folder)
        await self._attend(handle, seat)
        await self._decide(handle)

    async def _attend(self, handle: VMHandle, seat: _Seat) -> None:
        """Answer the source again after a restart of this agent."""
        line = handle.manifest.endpoint.get("agent", "") if handle.manifest is not None else ""
        if seat.attendance is not None or not line:
            return
        word, uri = read_line(line)
        seat.attendance = self._attendance(handle, seat, word)
        try:
            await seat.attendance.listen(parse(uri))
        except DriverError as error:  # then the source takes this agent for silent, and keeps it
            log.warning("nobody can ask for the copy of %s: %s", handle.id, error.message)

    def _attendance(self, handle: VMHandle, seat: _Seat, word: str) -> Attendance:
        async def keep(end: int, data: bytes) -> None:
            with suppress(OSError):  # a log is worth no stand-still
                await asyncio.to_thread(keep_earlier, handle.folder, end, data)

        return Attendance(word, seat.executes, partial(self._reshape, handle), keep)

    def _waits(self, handle: VMHandle, vm: DesiredVM) -> bool:
        manifest = handle.manifest
        if manifest is None or not handle.is_alive or manifest.role != "incoming":
            return False
        return manifest.endpoint.get("mode") == mode_of(vm)

    async def _open(
        self, handle: VMHandle, monitor: Monitor, vm: DesiredVM, given: dict[str, str]
    ) -> dict[str, str]:
        """Let QEMU listen for the migration, where it did before if it did; return where."""
        settings = self._parts.settings
        endpoint = {"mode": mode_of(vm)}
        credentials = await add_credentials(monitor, settings.migrate_tls, "server")
        if credentials:
            endpoint["tls"] = X509
        storage = handle.manifest.storage if handle.manifest is not None else "none"
        if storage == "shared" and settings.shared_disks is not None:
            endpoint["storage"] = await asyncio.to_thread(
                storage_id, settings.shared_disks, self._parts.clock
            )
        elif storage == "local":

            async def serve(address: Address) -> None:
                await export_disk(monitor, address, credentials)

            endpoint["nbd"] = await self._listen(f"{vm.id}/disk", serve, given.get("nbd"))
            if handle.manifest is not None and handle.manifest.image is not None:
                endpoint["image"] = handle.manifest.image.digest
        seat = self._seat(handle)
        if seat.attendance is None:
            word = secrets.token_hex(16)
            seat.attendance = self._attendance(handle, seat, word)
            answer = seat.attendance.listen
            uri = await self._listen(f"{vm.id}/agent", answer, None)
            endpoint["agent"] = line_of(word, uri)
        else:
            endpoint["agent"] = given["agent"]
        if endpoint["mode"] == "live":
            stream = self._await_stream(monitor, vm, credentials, given.get("uri"))
            endpoint["uri"] = await stream
        return endpoint

    async def _listen(
        self, name: str, attempt: Callable[[Address], Awaitable[object]], given: str | None
    ) -> str:
        """Let `attempt` listen at a free address, or at the one that others were given."""
        if given is None:
            return (await listen(self._parts.settings, name, attempt)).uri
        await attempt(parse(given))
        return given

    async def _await_stream(
        self, monitor: Monitor, vm: DesiredVM, credentials: str, given: str | None
    ) -> str:
        capabilities = {"events": True, "postcopy-ram": bool(vm.move and vm.move.post_copy)}
        await set_capabilities(monitor, capabilities)
        await monitor.execute("migrate-set-parameters", {"tls-creds": credentials})

        async def wait_at(address: Address) -> None:
            await monitor.execute("migrate-incoming", {"uri": address.uri})

        return await self._listen(f"{vm.id}/stream", wait_at, given)

    # Taking over

    def _hear(self, handle: VMHandle, event: Event) -> None:
        if event.name != "MIGRATION":
            return
        status, manifest = event.data.get("status"), handle.manifest
        if status == "failed" and manifest is not None and not self._seat(handle).shaped:
            self._silent_sources.add(manifest.order.peer)
        if status in ("completed", "postcopy-active"):
            task = asyncio.create_task(self._follow(handle, status == "completed"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow(self, handle: VMHandle, whole: bool) -> None:
        try:
            await self._decide(handle, whole)
        except DriverError as error:
            log.warning("the copy of %s does not take over yet: %s", handle.id, error.message)

    async def _decide(self, handle: VMHandle, whole: bool = False) -> None:
        """Take over if the copy is complete; `whole`: QEMU has just said so."""
        seat = self._seat(handle)
        async with seat.lock:
            manifest = handle.manifest
            if manifest is None or manifest.role != "incoming" or not handle.is_alive:
                return
            monitor = await handle.reach()
            if manifest.arrived or not whole:
                runstate = await self._runstate(monitor)
                if runstate == "inmigrate" or (manifest.arrived and runstate == "running"):
                    if manifest.arrived:
                        seat.executes.set()
                    return
                if not manifest.arrived and await phase(monitor) == BROKEN:
                    await power.end(handle)  # what it lacks will not come, and it never executed
                    return
            await self._take_over(handle, seat, manifest, monitor)

    async def _runstate(self, monitor: Monitor) -> str:
        """Return QEMU's run state; in post-copy no event says that the guest could execute."""
        clock = self._parts.clock
        give_up_at = clock.monotonic() + _PATIENCE_S
        while True:
            runstate = str((await monitor.execute("query-status"))["status"])
            if runstate != "inmigrate" or clock.monotonic() > give_up_at:
                return runstate
            if (await monitor.execute("query-migrate")).get("status") not in POST_COPY:
                return runstate
            await clock.sleep(_POLL_S)

    async def _take_over(
        self, handle: VMHandle, seat: _Seat, manifest: Manifest, monitor: Monitor
    ) -> None:
        wants = manifest.order.power != "paused"
        if manifest.arrived:
            if wants:
                await monitor.execute("cont")
            seat.executes.set()
            return
        # A copy that was marked may be cut off before it executes. The mark stays then, for
        # somebody may have seen it; nothing but this very step ever sets it.
        ending = [end_export(monitor)] if "nbd" in manifest.endpoint else []
        await asyncio.gather(self._set_mark(seat), *ending)
        # From here on it has arrived, whether or not there is room to write the manifest anew.
        handle.manifest = replace(handle.manifest or manifest, arrived=True)
        try:
            if wants:
                await monitor.execute("cont")
            seat.executes.set()
        finally:
            handle.tell()
            await handle.note(arrived=True)

    async def _set_mark(self, seat: _Seat) -> None:
        assert seat.mark is not None
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, seat.mark.set)
        except OSError as error:
            text = f"it cannot be written down that a copy takes over: {error}"
            raise DriverError("transient", "not_written", text) from error

    # Afterwards

    async def land(self, handle: VMHandle, vm: DesiredVM) -> None:
        """Turn the incoming copy into the VM, as ordered."""
        manifest = handle.manifest
        if manifest is None or manifest.role == "moved":
            raise DriverError("permanent", "not_here", f"there is no copy of {vm.name} here")
        if manifest.role == "run":
            return
        if not manifest.arrived:
            await self._settle(handle, manifest, vm)
        told = await handle.told()
        if told is not None and told.migration in POST_COPY - {BROKEN}:
            raise not_ready(vm, "its memory is still on the way")
        if told is not None and told.runstate == "paused" and vm.power == "running":
            await power.go(self._parts, handle, vm, handle.cuts)
        here = (handle.manifest or manifest).order
        order = replace(
            vm,
            cpu_milli=here.cpu_milli,
            memory_bytes=here.memory_bytes,
            disk_bytes=here.disk_bytes,
            extended=here.extended,
            devices=here.devices,
        )
        if vm.part == "run":
            await handle.note(order=order, role="run", arrived=False, endpoint={})
            self.forget(handle)
        else:
            await handle.note(order=order)
        protect(self._parts, handle, vm)

    async def _settle(self, handle: VMHandle, manifest: Manifest, vm: DesiredVM) -> None:
        """Let a complete copy execute; one whose disk alone was sent boots."""
        told = await handle.told()
        if told is None:
            raise DriverError("permanent", "incoming_lost", f"the copy of {vm.name} is dead")
        if told.runstate != "inmigrate":
            await self._decide(handle)
        elif vm.sent and told.migration not in ("active", *POST_COPY):
            # Nobody ever connected to send memory, and the source says that all was sent.
            await self._boot(handle, manifest, vm)
        if handle.manifest is None or not handle.manifest.arrived:
            raise not_ready(vm, "it has not come whole yet")

    async def _boot(self, handle: VMHandle, manifest: Manifest, vm: DesiredVM) -> None:
        async with self._seat(handle).lock:
            cuts = handle.cuts
            if "nbd" in manifest.endpoint:
                await end_export(await handle.reach())
            await power.end(handle)  # which writes out what was received
            await handle.note(arrived=True, process=None, endpoint={})
        if vm.power != "stopped":
            with handle.starting():
                await launch(self._parts, handle, vm, role="incoming")
                await power.go(self._parts, handle, vm, cuts)

    async def withdraw(self, handle: VMHandle) -> None:
        """Destroy an incoming copy unless it has taken over; then raises `arrived`."""
        seat = self._seat(handle)
        async with seat.lock:
            marked = await asyncio.to_thread(is_marked, handle.folder)
            if handle.manifest is not None and (marked or handle.manifest.arrived):
                text = f"{handle.manifest.order.name} has arrived here"
                raise DriverError("transient", "arrived", text)
            if handle.process is not None:
                await handle.process.kill()

    def _seat(self, handle: VMHandle) -> _Seat:
        if handle not in self._seats:
            self._seats[handle] = _Seat()
        return self._seats[handle]


def check_shape(settings: QemuSettings, vm: DesiredVM, shape: Shape) -> None:
    """Refuse a machine that no source of this VM could have."""
    fits = 1 <= shape.vcpus <= shape.most_vcpus <= MOST_VCPUS
    fits = fits and MIB <= shape.memory_bytes <= _MOST_TIMES * vm.memory_bytes + _MOST_MORE_BYTES
    fits = fits and 0 <= shape.devices <= BARE_SEED
    known = shape.machine in ("", settings.machine) or (
        shape.machine.startswith(f"{settings.machine}-") and _MACHINE.fullmatch(shape.machine)
    )
    if not fits or not known:
        raise DriverError("permanent", "shape_differs", f"{vm.name} cannot be {shape} here")


def waiting_words(shape: Shape, vm: DesiredVM) -> str:
    """Return which amounts wait for the next boot of a copy that is shaped as at its source."""
    wanted, waits = shape_of(vm), []
    if wanted.memory_bytes > shape.memory_bytes:
        now, then = shape.memory_bytes // MIB, wanted.memory_bytes // MIB
        waits.append(f"{then} MiB of memory hold from the next boot, now it has {now} MiB")
    if wanted.vcpus != shape.vcpus:
        waits.append(f"{wanted.vcpus} vCPUs hold from the next boot, now it has {shape.vcpus}")
    return "; ".join(waits)


def mode_of(vm: DesiredVM) -> str:
    """Return how a VM is received: one that does not execute has no memory to send."""
    cold = vm.power == "stopped" or (vm.move is not None and vm.move.mode == "cold")
    return "cold" if cold else "live"


def not_ready(vm: DesiredVM, why: str) -> DriverError:
    """Return the refusal to land a copy for now."""
    return DriverError("transient", "not_ready", f"the copy of {vm.name} is not ready: {why}")


async def set_capabilities(monitor: Monitor, wanted: dict[str, bool]) -> None:
    """Switch capabilities of QEMU's migrations on and off."""
    states = [{"capability": name, "state": state} for name, state in wanted.items()]
    await monitor.execute("migrate-set-capabilities", {"capabilities": states})
