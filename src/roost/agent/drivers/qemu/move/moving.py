"""Both halves of a move between hosts. The driver holds `handle.lock` during each call.

`receiving` is the target's half, `sending` the source's, `coldcopy` the source's when there is no
memory to send.
"""

from collections.abc import Callable

from roost.agent.drivers.qemu import power
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import Parts, launch
from roost.agent.drivers.qemu.move import mirror
from roost.agent.drivers.qemu.move.coldcopy import send_cold
from roost.agent.drivers.qemu.move.leaving import UNDER_WAY, cancel, phase, settled
from roost.agent.drivers.qemu.move.receiving import Receiving
from roost.agent.drivers.qemu.move.sending import Sending
from roost.wire.agentlink import DesiredVM, ProgressInfo


class Moving:
    """Moves the VMs of one host."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._receiving = Receiving(parts)

    async def close(self) -> None:
        """Stop watching moves under way; QEMU goes on with them."""
        await self._receiving.close()

    async def adopt(self, handle: VMHandle) -> None:
        """Resume the role of a QEMU that was found running in a move, such as an incoming copy."""
        if handle.manifest is not None and handle.manifest.role == "incoming":
            await self._receiving.watch(handle)

    async def prepare_incoming(self, handle: VMHandle, vm: DesiredVM) -> None:
        """Start an incoming copy; the driver has checked that at most remains are here."""
        await self._receiving.prepare(handle, vm)

    async def withdraw(self, handle: VMHandle) -> None:
        """Raise `arrived` if the copy has taken over; the driver then removes it."""
        await self._receiving.withdraw(handle)

    def forget(self, handle: VMHandle) -> None:
        """Release what is kept for an incoming copy that is gone."""
        self._receiving.forget(handle)

    async def land(self, handle: VMHandle, vm: DesiredVM) -> None:
        """Turn the copy that was received into the VM."""
        await self._receiving.land(handle, vm)

    async def send(
        self, handle: VMHandle, vm: DesiredVM, progress: Callable[[ProgressInfo], None]
    ) -> None:
        """Send the VM to the target."""
        if handle.manifest is not None and handle.manifest.role == "moved":
            return
        cold = vm.move is not None and vm.move.mode == "cold"
        if cold or not handle.is_alive:
            await send_cold(self._parts, handle, vm, progress)
        else:
            await Sending(self._parts, handle, vm, progress).run()

    async def recall(self, handle: VMHandle, vm: DesiredVM) -> None:
        """Cancel the sending unless the switch-over has begun."""
        if not handle.is_alive:
            return
        monitor = await handle.reach()
        await cancel(self._parts, handle, monitor)
        if await phase(monitor) not in UNDER_WAY:
            await mirror.clear(monitor)  # of a disk that was copied before the memory

    async def go_on(self, handle: VMHandle, vm: DesiredVM) -> None:
        """Resume a guest that was sent or is switching over, where it stood."""
        cuts = handle.cuts
        monitor = await handle.reach()
        told = await handle.told()
        if told is not None and told.migration in UNDER_WAY:
            # Whoever orders this knows that the target is dead: only now may it be cancelled.
            await monitor.execute("migrate_cancel")
            if await settled(self._parts, monitor) == "finish-migrate":
                await self._boot(handle, vm, cuts)
                return
        await handle.note(order=vm, role="run", arrived=False, endpoint={})
        await mirror.clear(monitor)
        await power.go(self._parts, handle, vm, cuts)

    async def _boot(self, handle: VMHandle, vm: DesiredVM, cuts: int) -> None:
        """Boot the VM anew: the guest that it holds in memory cannot be resumed."""
        with handle.starting():
            await power.end(handle)
            await launch(self._parts, handle, vm)
            await power.go(self._parts, handle, vm, cuts)
