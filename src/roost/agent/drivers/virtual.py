"""The virtual driver: pretends to run VMs. Shipped, and marked `virtual` in every listing.

Boot, stop and move times, loads (`virtualloads.py`) and faults are settable. Its VMs live in
`VMFiles`, outside the agent, so an agent that is killed and started again adopts them. Where real
VMs would run on processors, these only have a state; everything else about them is as real as the
agent can see.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as copy

from msgspec.structs import replace

from roost.agent.drivers.base import EXECUTING, ConsolePart, Fences, LocalState, LocalVM
from roost.agent.drivers.virtualflows import FLOWS_LABEL, VirtualFlows
from roost.agent.drivers.virtualloads import LABEL, STEADY, Load
from roost.agent.drivers.virtualsampling import HostAmounts, VirtualSampler
from roost.agent.drivers.virtualtraces import Trace
from roost.agent.drivers.vmfiles import Change, MemoryVMs, VMFiles
from roost.base.clock import Clock
from roost.base.units import GIB
from roost.hostkit.failures import DriverError
from roost.model.states import FailureClass
from roost.wire.agentlink import (
    AmountInfo,
    CellInfo,
    DesiredVM,
    DeviceInfo,
    FlowInfo,
    Inventory,
    ProgressInfo,
    SampleInfo,
    TaintInfo,
)


@dataclass(slots=True)
class Fault:
    """Something that goes wrong on purpose: at a step, so many times or always."""

    step: str  # start, stop, restart, resize, destroy, prepare_incoming, send, land, list, ...
    times: int | None = None  # None: always
    vm: str = ""  # only this VM, by id or name
    failure: FailureClass = "transient"
    code: str = "fault"
    hang: bool = False  # never answer instead of failing


@dataclass(frozen=True, slots=True)
class VirtualSettings:
    """What a virtual host has and how its VMs behave. A total of None cannot be read."""

    cpu_milli: int | None = 16_000
    memory_bytes: int | None = 64 * GIB
    disk_bytes: int | None = 1000 * GIB
    extended: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[DeviceInfo, ...] = ()
    cells: tuple[CellInfo, ...] = ()
    boot_s: float = 0.5
    stop_s: float = 0.2
    move_s: float = 1.0
    load: Load = STEADY  # of VMs whose labels say none
    traces: Mapping[str, Trace] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


class NoFences:
    """For hosts without a fence guard."""

    def put(self, vm_id: str, recipe: dict[str, object]) -> None:
        """Ignore the recipe: no guard runs."""

    def drop(self, vm_id: str) -> None:
        """Ignore the removal: no recipe is stored."""

    def ids(self) -> tuple[str, ...]:
        """Return no ids: no recipe is stored."""
        return ()


class VirtualDriver:
    """A hypervisor that only keeps books. Implements `Driver`."""

    name = "virtual"
    virtual = True

    def __init__(
        self,
        settings: VirtualSettings,
        *,
        clock: Clock,
        vms: VMFiles | None = None,
        fences: Fences | None = None,
    ) -> None:
        self.settings = settings
        self.faults: list[Fault] = [copy(fault) for fault in settings.faults]
        self._clock = clock
        self._vms = vms or MemoryVMs()
        self._fences = fences or NoFences()
        amounts = HostAmounts(settings.cpu_milli, settings.memory_bytes)
        self._sampler = VirtualSampler(settings.load, settings.traces, amounts)
        self._flows = VirtualFlows()

    def watch(self, changed: Callable[[str], None]) -> None:
        """Ignore the callback: virtual VMs never change by themselves."""

    async def close(self) -> None:
        """Close nothing: the driver has no connections."""

    async def inventory(self) -> Inventory:
        """Return what the settings say."""
        await self._meet("inventory")
        settings = self.settings
        return Inventory(
            cpu_milli=AmountInfo(settings.cpu_milli),
            memory_bytes=AmountInfo(settings.memory_bytes),
            disk_bytes=AmountInfo(settings.disk_bytes),
            extended={name: AmountInfo(total) for name, total in settings.extended.items()},
            devices=list(settings.devices),
            cells=list(settings.cells),
            driver=self.name,
            virtual=True,
        )

    async def conditions(self) -> list[TaintInfo]:
        """Return nothing: a virtual host has no disk that could be full."""
        return []

    async def list_vms(self) -> list[LocalVM] | None:
        """Return every VM, or None under a fault of the step `list`."""
        try:
            await self._meet("list")
        except DriverError:
            return None
        return await self._vms.all()

    async def look(self, vm_id: str) -> LocalVM | None:
        """Return one VM as it is now."""
        await self._meet("look", vm_id)
        return await self._vms.get(vm_id)

    async def start(self, vm: DesiredVM) -> None:
        """Boot a virtual VM, which takes `boot_s`; one that was sent and came back runs at once."""
        await self._meet("start", vm.id, vm.name)
        here = await self._vms.get(vm.id)
        if here is not None and here.state in ("running", "paused"):
            return
        await self.protect(vm)
        kept = here is not None and here.state == "moved" and vm.restarts == here.restarts
        await self._vms.change(vm.id, lambda _: _as_ordered(vm, "starting"))
        if not kept:
            await self._clock.sleep(self.settings.boot_s)
        # The guard may have stopped it meanwhile: only what is still starting may run.
        await self._vms.change(vm.id, _from(("starting",), _as_ordered(vm, _executing(vm))))

    async def stop(self, vm_id: str, grace_s: float, reason: str = "") -> None:
        """Stop a virtual VM, which takes `stop_s`, or `grace_s` if that is shorter."""
        await self._meet("stop", vm_id)
        here = await self._vms.get(vm_id)
        if here is None or here.state not in EXECUTING | {"moved"}:
            return
        if here.state in ("running", "starting"):
            await self._clock.sleep(min(grace_s, self.settings.stop_s))

        def stopped(vm: LocalVM | None) -> LocalVM | None:
            if vm is not None and vm.state in ("ready", "lost"):
                return replace(vm, state="lost", endpoint={})
            return vm and replace(vm, state="stopped", reason=reason)

        # The recipe stays: it does nothing to a VM that is stopped, and a start may be under way.
        await self._vms.change(vm_id, stopped)

    async def pause(self, vm: DesiredVM) -> None:
        """Pause a virtual VM."""
        await self._meet("pause", vm.id, vm.name)
        await self._vms.change(vm.id, _from(("running", "paused"), _as_ordered(vm, "paused")))

    async def resume(self, vm: DesiredVM) -> None:
        """Resume a virtual VM."""
        await self._meet("resume", vm.id, vm.name)
        await self._vms.change(vm.id, _from(("running", "paused"), _as_ordered(vm, "running")))

    async def restart(self, vm: DesiredVM) -> None:
        """Boot the VM anew."""
        await self._meet("restart", vm.id, vm.name)
        before = ("running", "paused", "starting")
        await self._vms.change(vm.id, _from(before, _as_ordered(vm, "starting")))
        await self._clock.sleep(self.settings.boot_s)
        await self._vms.change(vm.id, _from(("starting",), _as_ordered(vm, _executing(vm))))

    async def resize(self, vm: DesiredVM) -> None:
        """Resize a virtual VM to the order's amounts."""
        await self._meet("resize", vm.id, vm.name)
        await self._vms.change(
            vm.id, lambda here: here and replace(_as_ordered(vm, here.state), reason=here.reason)
        )

    async def protect(self, vm: DesiredVM) -> None:
        """Store the guard's recipe for a VM that may run elsewhere; else remove it."""
        if vm.restart == "elsewhere":
            self._fences.put(vm.id, self._vms.recipe(vm.id))
        await self._vms.change(vm.id, lambda here: here and replace(here, restart=vm.restart))
        if vm.restart == "here":
            self._fences.drop(vm.id)

    async def destroy(self, vm_id: str) -> None:
        """Delete the virtual VM."""
        await self._meet("destroy", vm_id)
        await self._vms.change(vm_id, lambda _: None)
        self._fences.drop(vm_id)

    async def prepare_incoming(self, vm: DesiredVM) -> None:
        """Prepare an empty incoming copy."""
        await self._meet("prepare_incoming", vm.id, vm.name)

        def ready(here: LocalVM | None) -> LocalVM:
            if here is not None and (here.arrived or here.state not in ("ready", "moved", "lost")):
                raise DriverError("permanent", "copy_here", f"{vm.id} is here and {here.state}")
            return _as_ordered(vm, "ready")

        if vm.restart == "elsewhere":
            self._fences.put(vm.id, self._vms.recipe(vm.id))
        await self._vms.change(vm.id, ready)

    async def withdraw(self, vm_id: str) -> None:
        """Forget an incoming copy unless it has arrived."""
        await self._meet("withdraw", vm_id)

        def gone(here: LocalVM | None) -> None:
            if here is not None and here.arrived:
                raise DriverError("transient", "arrived", f"{vm_id} has arrived")

        await self._vms.change(vm_id, gone)
        self._fences.drop(vm_id)

    async def send(self, vm: DesiredVM, progress: Callable[[ProgressInfo], None]) -> None:
        """Send a virtual VM, which takes `move_s`; it runs here until the last moment."""
        await self._meet("send", vm.id, vm.name)
        progress(ProgressInfo(left_bytes=vm.memory_bytes))
        await self._clock.sleep(self.settings.move_s)
        left = _from(("running", "paused", "stopped", "moved"), _as_ordered(vm, "moved"))
        await self._vms.change(vm.id, left)
        self._fences.drop(vm.id)

    async def recall(self, vm: DesiredVM) -> None:
        """Recall a sending: the VM runs until it has left, so nothing is undone."""
        await self._meet("recall", vm.id, vm.name)

    async def land(self, vm: DesiredVM) -> None:
        """Turn the copy that waits into the VM."""
        await self._meet("land", vm.id, vm.name)
        here = await self._vms.get(vm.id)
        if here is not None and vm.part == "run" and here.state in ("running", "paused", "stopped"):
            await self._vms.change(vm.id, _settled(vm))
            return
        if here is None or not (here.arrived or here.state == "ready"):
            raise DriverError("permanent", "not_ready", f"no incoming copy of {vm.id} waits here")
        await self.protect(vm)
        landed = replace(_as_ordered(vm, vm.power), arrived=vm.part == "incoming")

        def land(now: LocalVM | None) -> LocalVM:
            if now is not None and now.arrived:
                return replace(now, generation=vm.generation)
            return _from(("ready",), landed)(now)  # type: ignore[return-value]

        await self._vms.change(vm.id, land)

    async def console(self, vm_id: str, start: int | None, limit: int) -> ConsolePart:
        """Return an empty console: a virtual VM writes nothing."""
        await self._meet("console", vm_id)
        if await self._vms.get(vm_id) is None:
            raise DriverError("permanent", "not_here", f"{vm_id} is not here")
        return ConsolePart("", 0, 0)

    async def samples(self) -> list[SampleInfo]:
        """Return what the VMs pretend to use."""
        await self._meet("samples")
        return self._sampler.read(await self._vms.all(), self._clock.wall_ms())

    async def flows(self) -> list[FlowInfo]:
        """Return what the VMs pretend to have sent to each other, as their labels say."""
        await self._meet("flows")
        return self._flows.read(await self._vms.all(), self._clock.monotonic())

    async def _meet(self, step: str, vm_id: str = "", name: str = "") -> None:
        """Fail or hang if a fault waits at this step."""
        for fault in self.faults:
            if fault.step != step or fault.times == 0 or fault.vm not in ("", vm_id, name):
                continue
            if fault.times is not None:
                fault.times -= 1
            while fault.hang:
                await self._clock.sleep(3600.0)
            raise DriverError(fault.failure, fault.code, f"{step} fails on purpose")


def _settled(vm: DesiredVM) -> Change:
    """Return the change that clears a VM's arrival mark."""
    return lambda now: now and replace(now, arrived=False, generation=vm.generation)


def _executing(vm: DesiredVM) -> LocalState:
    return "paused" if vm.power == "paused" else "running"


def _as_ordered(vm: DesiredVM, state: LocalState) -> LocalVM:
    return LocalVM(
        id=vm.id,
        name=vm.name,
        state=state,
        cpu_milli=vm.cpu_milli,
        memory_bytes=vm.memory_bytes,
        disk_bytes=vm.disk_bytes,
        extended=vm.extended,
        devices=vm.devices,
        generation=vm.generation,
        restarts=vm.restarts,
        restart=vm.restart,
        load=vm.labels.get(LABEL, ""),
        flows=vm.labels.get(FLOWS_LABEL, ""),
    )


def _from(states: tuple[str, ...], after: LocalVM) -> Change:
    """Return the change to `after` that is refused when the VM is in another state."""

    def change(here: LocalVM | None) -> LocalVM:
        if here is None or here.state not in states:
            found = "gone" if here is None else here.state
            raise DriverError(
                "transient", "interrupted", f"{after.id} is {found}, not {' or '.join(states)}"
            )
        return after

    return change
