"""Power of a VM: run, pause, shut down, kill.

A VM that is asked to shut down gets its grace; then QEMU is told to quit, which writes out what it
holds of the disk, and if it does not it is killed. A cut kills at once and waits for nobody.
"""

from msgspec.structs import replace

from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import Parts, protect
from roost.agent.drivers.qemu.monitor import SILENT, Monitor
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM

INTERRUPTED = "interrupted"
QUIT_S = 3.0
#: A power-down that comes before the guest listens is lost, so it is sent again.
_AGAIN_S = 2.0


async def go(parts: Parts, handle: VMHandle, vm: DesiredVM, cuts: int) -> None:
    """Run the guest, unless the VM was cut off since `cuts` was read; then pause it if ordered.

    The fence guard has its recipe before.
    """
    protect(parts, handle, vm)
    monitor = await handle.reach()
    await demand_uncut(handle, cuts)
    await monitor.execute("cont")
    if vm.power == "paused":
        await monitor.execute("stop")


async def demand_uncut(handle: VMHandle, cuts: int) -> None:
    """Kill its QEMU and raise `interrupted` if the VM was cut off since `cuts` was read."""
    if handle.cuts != cuts:
        await cut(handle, handle.cut_reason)
        raise DriverError("transient", INTERRUPTED, f"{handle.id} was cut off as it started")


async def note_order(handle: VMHandle, vm: DesiredVM) -> None:
    """Write down the order that changed a VM's power; its amounts change by `resize` alone."""
    if handle.manifest is not None:
        order = handle.manifest.order
        await handle.note(order=replace(order, generation=vm.generation, power=vm.power))


async def shut_down(handle: VMHandle, clock: Clock, grace_s: float, reason: str) -> None:
    """Ask the guest to power off, for at most `grace_s`; then end QEMU."""
    give_up_at = clock.monotonic() + grace_s
    try:
        told = await handle.told(QUIT_S)
        if told is not None and _can_listen(handle, told.runstate):
            await _power_down(await handle.reach(), clock, give_up_at)
    except DriverError:
        # It hangs, or has just ended: nobody can be asked, but it may still end by itself.
        if handle.process is not None:
            await handle.process.wait_gone(max(0.0, give_up_at - clock.monotonic()))
            await handle.process.kill()
    await end(handle)
    await _note_end(handle, reason)


async def cut(handle: VMHandle, reason: str) -> None:
    """Kill the QEMU of a VM at once."""
    handle.cut_reason = reason
    if handle.process is not None:
        await handle.process.kill()
    await handle.disconnect()
    await _note_end(handle, reason)


async def give_up(handle: VMHandle) -> None:
    """Clean up after a failed start: the VM is stopped, and has not crashed."""
    await end(handle)
    if handle.manifest is not None and handle.manifest.process is not None:
        await handle.note(process=None)


async def end(handle: VMHandle) -> None:
    """End the QEMU of a VM if there is one: by its own exit if quick, else by force."""
    if handle.process is None:
        return
    if handle.is_alive:
        try:
            await (await handle.reach(QUIT_S)).execute("quit", within_s=QUIT_S)
            await handle.process.wait_gone(QUIT_S)
        except DriverError:
            pass  # then by force
        await handle.process.kill()
    await handle.disconnect()
    handle.hold(None)


def _can_listen(handle: VMHandle, runstate: str) -> bool:
    """Return whether the guest executes or may do so, to hear that it shall power off."""
    if handle.manifest is None or handle.manifest.role != "run":
        return False
    return runstate in ("running", "paused", "suspended")


async def _power_down(monitor: Monitor, clock: Clock, give_up_at: float) -> None:
    with monitor.expecting("SHUTDOWN") as down:
        await monitor.execute("cont")
        while (left := give_up_at - clock.monotonic()) > 0:
            await monitor.execute("system_powerdown")
            try:
                await down.within(min(left, _AGAIN_S))
            except DriverError as error:
                if error.code != SILENT:
                    raise
            else:
                return


async def _note_end(handle: VMHandle, reason: str) -> None:
    """Record that the VM was ended on purpose; a copy that never arrived stays one, lost."""
    manifest = handle.manifest
    if manifest is None or (manifest.process is None and manifest.role != "moved"):
        return
    role = "run" if manifest.role == "moved" else manifest.role
    await handle.note(process=None, reason=reason, role=role, endpoint={})
