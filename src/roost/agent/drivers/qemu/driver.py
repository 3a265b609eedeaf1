"""The QEMU driver: the port between the agent and real VMs.

Each VM is one QEMU process and one folder; both outlive the agent, and a new driver finds them
again. The driver decides which step an order needs; how is in the modules beside it: `launch`
starts a process, `power` lets it execute and ends it, `resizing` changes amounts, `moving` does
both halves of a move, `sampling` reads how busy VMs are, `sight` says what a VM is.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from roost.agent.drivers.base import FENCED, GUEST_SHUTDOWN, ConsolePart, Fences, LocalVM
from roost.agent.drivers.qemu import power
from roost.agent.drivers.qemu.command import choose_accel
from roost.agent.drivers.qemu.consoles import read_console
from roost.agent.drivers.qemu.folders import read_folders, remove_folder
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import (
    Images,
    Parts,
    launch,
    limit_disk,
    limits_of,
    owned_disk,
    protect,
)
from roost.agent.drivers.qemu.manifest import folder_name
from roost.agent.drivers.qemu.monitor import Monitor
from roost.agent.drivers.qemu.move.moving import Moving
from roost.agent.drivers.qemu.process import open_process
from roost.agent.drivers.qemu.resizing import resize
from roost.agent.drivers.qemu.sampling import Sampler
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.agent.drivers.qemu.sight import local_vm, unknown_vm
from roost.agent.drivers.qemu.taps import close_taps, taps_on
from roost.agent.machine.flowcounters import FlowCounters, by_owner
from roost.agent.machine.hostfacts import HostReader
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.wire.agentlink import (
    DesiredVM,
    DeviceInfo,
    FlowInfo,
    Inventory,
    ProgressInfo,
    SampleInfo,
    TaintInfo,
)

log = logging.getLogger(__name__)

#: How soon a QEMU that does not answer an agent that has just started is tried again.
_GREET_AGAIN_S = 2.0


class QemuDriver:
    """Runs VMs on QEMU. Implements `Driver`; used from one event loop."""

    name = "qemu"
    virtual = False

    def __init__(
        self,
        settings: QemuSettings,
        *,
        clock: Clock,
        images: Images,
        fences: Fences,
        host: HostReader | None = None,
        groups: LimitGroups | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._host = host or HostReader(settings.folder)
        self._groups = groups or LimitGroups(group_name(settings.folder))
        self._parts = Parts(
            settings, clock, images, fences, self._devices, self._nodes, self._groups
        )
        self._moving = Moving(self._parts)
        self._sampler = Sampler(settings, clock)
        self._flows = FlowCounters(f"roost_{group_name(settings.folder)}")
        self._handles: dict[str, VMHandle] = {}
        self._adopted: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._changed: Callable[[str], None] = lambda _: None

    # The host

    def watch(self, changed: Callable[[str], None]) -> None:
        """Call `changed` after events of a QEMU and when one ends."""
        self._changed = changed

    async def close(self) -> None:
        """Close the connections to all QEMUs; VMs run on."""
        tasks = [*self._beside, *([self._adopted] if self._adopted else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._moving.close()
        for handle in self._handles.values():
            await handle.let_go()
        self._handles.clear()
        self._adopted = None
        await asyncio.to_thread(self._groups.close)
        with suppress(DriverError):  # what counts for nobody harms nobody
            await self._flows.close()

    async def inventory(self) -> Inventory:
        """Return what the machine has."""
        inventory = await self._host.inventory()
        inventory.driver = self.name
        inventory.virtual = False
        able = {"live-migration"}
        if choose_accel(self.settings.accel) == "kvm":
            able.add("kvm")
        able.update(await asyncio.to_thread(self._groups.held))
        if self.settings.limits_disk:
            able.add("limit:disk")
        inventory.capabilities = sorted({*inventory.capabilities, *able})
        return inventory

    async def conditions(self) -> list[TaintInfo]:
        """Return the taint of a full disk, or nothing."""
        return await self._host.conditions()

    async def list_vms(self) -> list[LocalVM] | None:
        """Return every VM; all are asked side by side, and one that hangs is `unknown`."""
        try:
            await self._adopt()
        except OSError as error:
            log.warning("the VMs of this host cannot be listed: %s", error)
            return None
        here = [handle for handle in self._handles.values() if handle.is_here]
        return list(await asyncio.gather(*map(self._listed, here)))

    async def look(self, vm_id: str) -> LocalVM | None:
        """Return one VM; raises when its QEMU lives and does not answer."""
        await self._adopt()
        handle = self._here(vm_id)
        return await self._look(handle) if handle is not None else None

    async def samples(self) -> list[SampleInfo]:
        """Return readings of the running VMs and of the host."""
        await self._adopt()
        at_ms = self._clock.wall_ms()
        readings = await self._sampler.read(list(self._handles.values()), at_ms)
        host = await self._host.sample(at_ms)
        return readings if host is None else [*readings, host]

    async def flows(self) -> list[FlowInfo]:
        """Return what VMs with a card on a bridge that is counted have sent to other cards."""
        if not (bridges := self.settings.count_flows):
            return []
        await self._adopt()
        owners = {
            tap: handle.id
            for handle in self._handles.values()
            if handle.is_alive and handle.manifest is not None
            for tap in taps_on(handle.manifest.order, bridges)
        }
        found = by_owner(await self._flows.read(list(owners)), owners)
        return [FlowInfo(vm, card, count) for (vm, card), count in found.items()]

    # Orders

    async def start(self, vm: DesiredVM) -> None:
        """Boot a VM, or let a kept guest go on where it stood."""
        handle = await self._handle(vm.id)
        async with handle.lock:
            cuts = handle.cuts
            here = await self._look(handle) if handle.is_here else None
            match here and here.state:
                case "running" | "paused":
                    return
                case "unknown" | "ready" | "sending" as state:
                    raise DriverError("transient", "not_now", f"{vm.name} is {state} here")
                case "moved" | "switching" if handle.is_alive and not _is_stale(handle, vm):
                    await self._moving.go_on(handle, vm)
                    return
            await self._boot(handle, vm, cuts)

    async def stop(self, vm_id: str, grace_s: float, reason: str = "") -> None:
        """Shut a guest down, or kill its QEMU at once without waiting for calls under way."""
        await self._adopt()
        handle = self._handles.get(vm_id)  # also one that is only about to start
        if handle is None:
            return
        if grace_s <= 0:
            handle.cuts += 1
            await power.cut(handle, reason)
            return
        async with handle.lock:
            handle.cuts += 1
            await power.shut_down(handle, self._clock, grace_s, reason)

    async def pause(self, vm: DesiredVM) -> None:
        """Pause the guest of a VM."""
        async with self._ordered(vm) as handle:
            await self._demand(handle, "running", "paused")
            await (await handle.reach()).execute("stop")
            await power.note_order(handle, vm)

    async def resume(self, vm: DesiredVM) -> None:
        """Resume the guest of a VM."""
        async with self._ordered(vm) as handle:
            cuts = handle.cuts
            await self._demand(handle, "running", "paused")
            await power.go(self._parts, handle, vm, cuts)
            await power.note_order(handle, vm)

    async def restart(self, vm: DesiredVM) -> None:
        """Boot a VM in a new QEMU process, so that pending resizes hold."""
        async with self._ordered(vm) as handle:
            here = await self._demand(handle, "starting", "running", "paused")
            if here.restarts == vm.restarts and here.state != "starting":
                return  # it was carried out before
            cuts, grace_s = handle.cuts, self.settings.stop_grace_s
            await power.shut_down(handle, self._clock, grace_s, "")
            await self._boot(handle, vm, cuts)

    async def resize(self, vm: DesiredVM) -> None:
        """Resize a VM as far as QEMU can now; the rest waits for the next boot."""
        async with self._ordered(vm) as handle:
            await resize(self.settings, handle, vm)
            if handle.is_alive and handle.manifest is not None and handle.manifest.shape:
                limits = limits_of(handle.manifest.shape, vm, choose_accel(self.settings.accel))
                await asyncio.to_thread(self._groups.change, handle.folder.name, limits)

    async def protect(self, vm: DesiredVM) -> None:
        """Store or remove the fence guard's stop recipe, and record which in the manifest."""
        async with self._ordered(vm) as handle:
            if vm.restart == "elsewhere":
                protect(self._parts, handle, vm)
            if handle.manifest is not None:
                await handle.note(order=replace(handle.manifest.order, restart=vm.restart))
            protect(self._parts, handle, vm)

    async def destroy(self, vm_id: str) -> None:
        """Destroy a VM and its folder; a shared disk goes only with the VM that owns it."""
        await self._adopt()
        handle = self._handles.get(vm_id)
        if handle is not None:
            handle.cuts += 1
            async with handle.lock:
                await self._remove(handle)
        self._parts.fences.drop(vm_id)

    # Moves

    async def prepare_incoming(self, vm: DesiredVM) -> None:
        """Start an incoming copy that waits to be filled."""
        handle = await self._handle(vm.id)
        async with handle.lock:
            here = await self._look(handle) if handle.is_here else None
            state = here.state if here is not None else "nothing"
            if here is not None and (here.arrived or state not in ("ready", "moved", "lost")):
                raise DriverError("permanent", "copy_here", f"{vm.name} is here and {state}")
            cuts = handle.cuts
            await self._moving.prepare_incoming(handle, vm)
            await power.demand_uncut(handle, cuts)

    async def withdraw(self, vm_id: str) -> None:
        """Destroy an incoming copy that has not taken over."""
        await self._adopt()
        handle = self._handles.get(vm_id)
        if handle is not None:
            async with handle.lock:
                await self._moving.withdraw(handle)
                await self._remove(handle)
        self._parts.fences.drop(vm_id)

    async def send(self, vm: DesiredVM, progress: Callable[[ProgressInfo], None]) -> None:
        """Send a VM to the copy that waits at the target."""
        async with self._ordered(vm) as handle:
            await self._moving.send(handle, vm, progress)

    async def recall(self, vm: DesiredVM) -> None:
        """Cancel a sending while that is still safe."""
        async with self._ordered(vm) as handle:
            await self._moving.recall(handle, vm)

    async def land(self, vm: DesiredVM) -> None:
        """Turn the copy that was received into the VM."""
        async with self._ordered(vm) as handle:
            await self._moving.land(handle, vm)

    # What users ask

    async def console(self, vm_id: str, start: int | None, limit: int) -> ConsolePart:
        """Return a piece of a VM's serial log."""
        await self._adopt()
        handle = self._here(vm_id)
        if handle is None:
            raise DriverError("permanent", "not_here", f"{vm_id} is not here")
        return await asyncio.to_thread(read_console, handle.folder, start, limit)

    # Inside

    async def _adopt(self) -> None:
        """Adopt the VMs that an earlier agent left on this host, once."""
        if self._adopted is None or (self._adopted.done() and not _went_well(self._adopted)):
            self._adopted = asyncio.create_task(self._read_folders())
        await asyncio.shield(self._adopted)

    async def _read_folders(self) -> None:
        for found in await asyncio.to_thread(read_folders, self.settings.vms):
            handle = VMHandle(found.vm_id, found.folder, self._hear)
            handle.manifest = found.manifest
            handle.broken = found.manifest is None
            if found.process is not None:
                handle.hold(open_process(found.process, handle.ended))
            self._handles[found.vm_id] = handle
        await self._parts.images.retain(self._handles)
        for handle in self._handles.values():
            if handle.is_alive:
                self._start_beside(self._greet(handle))

    async def _greet(self, handle: VMHandle) -> None:
        """Connect to a QEMU that was found running, to receive its events."""
        while handle.is_alive:
            try:
                monitor = await handle.reach(self.settings.ask_s)
                await self._moving.adopt(handle)
            except DriverError as error:
                log.warning("QEMU of %s does not answer: %s", handle.id, error.message)
                await self._clock.sleep(_GREET_AGAIN_S)
            else:
                await self._limit_anew(handle, monitor)
                return

    async def _limit_anew(self, handle: VMHandle, monitor: Monitor) -> None:
        """Set the limits of a guest that runs as this agent has them: they may be others by now."""
        if handle.manifest is None or handle.manifest.storage not in ("local", "shared"):
            return
        try:
            await limit_disk(self.settings, monitor)
        except DriverError as error:
            log.warning("%s keeps the limits that it had: %s", handle.id, error.message)

    async def _handle(self, vm_id: str) -> VMHandle:
        await self._adopt()
        if vm_id not in self._handles:
            folder = self.settings.vms / folder_name(vm_id)
            self._handles[vm_id] = VMHandle(vm_id, folder, self._hear)
        return self._handles[vm_id]

    def _here(self, vm_id: str) -> VMHandle | None:
        handle = self._handles.get(vm_id)
        return handle if handle is not None and handle.is_here else None

    @asynccontextmanager
    async def _ordered(self, vm: DesiredVM) -> AsyncIterator[VMHandle]:
        """Hold the lock of a VM that must be on this host."""
        await self._adopt()
        handle = self._here(vm.id)
        if handle is None:
            raise DriverError("permanent", "not_here", f"{vm.name} is not here")
        async with handle.lock:
            yield handle

    async def _demand(self, handle: VMHandle, *states: str) -> LocalVM:
        here = await self._look(handle)
        if here.state not in states:
            raise DriverError("transient", "not_now", f"{handle.id} is {here.state}")
        return here

    async def _boot(self, handle: VMHandle, vm: DesiredVM, cuts: int) -> None:
        with handle.starting():
            await power.end(handle)
            try:
                await launch(self._parts, handle, vm)
                await power.go(self._parts, handle, vm, cuts)
            except DriverError as error:
                if error.code != power.INTERRUPTED:
                    await power.give_up(handle)
                raise

    async def _remove(self, handle: VMHandle) -> None:
        await power.end(handle)
        shared_disk = None
        if handle.manifest is not None:
            await close_taps(handle.manifest.order)
            shared_disk = owned_disk(self.settings, handle.manifest)
        self._moving.forget(handle)
        await asyncio.to_thread(self._groups.remove, handle.folder.name)
        await handle.let_go()
        await asyncio.to_thread(remove_folder, handle.folder, shared_disk)
        await self._parts.images.unpin(handle.id)
        if self._handles.get(handle.id) is handle:
            del self._handles[handle.id]

    async def _listed(self, handle: VMHandle) -> LocalVM:
        try:
            return await self._look(handle)
        except DriverError as error:
            return unknown_vm(handle.id, handle.manifest, error.message)

    async def _look(self, handle: VMHandle) -> LocalVM:
        manifest = handle.manifest
        if manifest is None:
            return unknown_vm(handle.id, None, "its manifest is lost, and no QEMU of it runs")
        told = await handle.told(self.settings.ask_s)
        if told is not None and told.runstate == "shutdown":
            self._start_beside(self._bury(handle))
        dead = manifest.process if told is None else None
        if dead is not None and await asyncio.to_thread(dead.was_fenced, handle.folder):
            await handle.note_end(dead, FENCED)
        return local_vm(handle.manifest or manifest, told)

    async def _bury(self, handle: VMHandle) -> None:
        """End the QEMU of a guest that has powered off, and record that in the manifest."""
        async with handle.lock:
            try:
                told = await handle.told(self.settings.ask_s)
                if told is not None and told.runstate == "shutdown":
                    await handle.note(process=None, reason=GUEST_SHUTDOWN)
                    await power.end(handle)
            except DriverError as error:
                log.warning("QEMU of %s does not end: %s", handle.id, error.message)

    async def _devices(self) -> list[DeviceInfo]:
        return await asyncio.to_thread(self._host.devices)

    async def _nodes(self) -> list[int]:
        return await asyncio.to_thread(self._host.cell_numbers)

    def _hear(self, vm_id: str) -> None:
        self._changed(vm_id)

    def _start_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)


def group_name(folder: Path) -> str:
    """Return a name for the control groups of an agent: no two on a machine share a folder."""
    return blake2b(str(folder.absolute()).encode(), digest_size=6).hexdigest()


def _is_stale(handle: VMHandle, vm: DesiredVM) -> bool:
    """Return whether more restarts are ordered than the copy has seen."""
    return handle.manifest is not None and vm.restarts > (handle.manifest.restarts or 0)


def _went_well(task: "asyncio.Task[None]") -> bool:
    return not task.cancelled() and task.exception() is None
