"""Keeps the VMs of one host as ordered: holds the facts, asks `converge`, lets lanes act.

Facts are the desired list, the records of what was carried out, what the driver shows and the
lease. Whenever one changes, every VM with a step to do gets its lane woken; each turn of a lane
looks at its VM anew, decides and acts. What it sees is told by `seen`, `held` and
`refused_destroying`, and `changed` is set when that may be different.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from msgspec.structs import replace

from roost.agent import sightings
from roost.agent.budget import Budgets, Calls, Stuck
from roost.agent.capacity import HostCapacity, Reserved, amounts_of
from roost.agent.converge import (
    FENCEABLE,
    FREEING,
    LEASED_STEPS,
    TAKING,
    Leased,
    Step,
    after_boot,
    condemned,
    held_ids,
    needs_confirming,
    next_step,
)
from roost.agent.crashes import Crashes
from roost.agent.desired import DesiredList, Order
from roost.agent.diskerrors import DISK_ERROR, DISK_ERROR_WORDS, DiskErrors
from roost.agent.drivers.base import FENCED, ConsolePart, Driver, LocalVM
from roost.agent.fencing.lease import Lease
from roost.agent.store import MOST_GONE, HostLimits, Record, Store
from roost.agent.teardown import TeardownGuard
from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.hostkit.lanes import Failure, LaneBackOff, Lanes, Turn
from roost.wire.agentlink import (
    CopyInfo,
    Delta,
    Desired,
    DesiredVM,
    FlowInfo,
    HeldVM,
    Inventory,
    LedgerPoint,
    ProgressInfo,
    SampleInfo,
    SeenVM,
    TaintInfo,
    Tombstone,
    Welcome,
    most_sent,
    within_bounds,
)
from roost.wire.hostsettings import with_limits

log = logging.getLogger(__name__)

T = TypeVar("T")

_SAVE_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """How a host's VMs are kept."""

    stop_grace_s: float = 30.0
    max_destroy: int | None = None  # more than the guard against mass destruction grants by itself
    back_off: LaneBackOff = field(default_factory=LaneBackOff)
    budgets: Budgets = field(default_factory=Budgets)


class Reconciler:
    """The VMs of one host."""

    def __init__(
        self,
        settings: ReconcilerSettings,
        *,
        driver: Driver,
        store: Store,
        lease: Lease,
        clock: Clock,
        random: Random,
    ) -> None:
        self.changed = asyncio.Event()
        self.known = False  # the driver has told what is here
        self.confirmed = False  # a list came since the lease was last renewed after a gap
        self.awaits_list = False  # the machine has booted, and no list confirmed anything since
        self._unconfirmed = False  # such a list came, of a control plane that was not sure itself
        self.refused_destroying = 0
        self.heard: LedgerPoint | None = None  # the newest point of a ledger it was told
        self._settings = settings
        self._driver = driver
        self._store = store
        self._lease = lease
        self._clock = clock
        self._calls = Calls(clock)
        self._lanes = Lanes(self._take_turn, clock=clock, random=random, back_off=settings.back_off)
        self._teardown = TeardownGuard(settings.max_destroy)
        self._desired: DesiredList | None = None
        self._unsaved = asyncio.Event()
        self._records: dict[str, Record] = {}
        self._local: dict[str, LocalVM] = {}
        self._reserved = Reserved(self._local, self._records)
        self._inventory: Inventory | None = None
        self._limits = HostLimits()  # what operators set in place of our own
        self._doing: dict[str, Step] = {}
        self._progress: dict[str, ProgressInfo] = {}
        self._crashes = Crashes()
        self._disk_errors = DiskErrors()
        self._conditions: list[TaintInfo] = []
        self._no_flows = ""  # why they could not be read the last time
        self._granted: set[str] = set()
        self._stuck: dict[str, asyncio.Task[Any]] = {}
        self._cuts: dict[str, asyncio.Task[None]] = {}
        driver.watch(self.look_at)

    # What it is told

    def open(self) -> None:
        """Read what an earlier life of this agent has left."""
        self._records.update({record.id: record for record in self._store.records()})
        stored = self._store.desired()
        self._desired = DesiredList.read(stored) if stored else None
        self._limits = self._store.limits() or self._limits
        points = [self._store.heard(), self._desired.point if self._desired else None]
        known = [point for point in points if point is not None]
        self.heard = max(known, key=lambda point: point.seq, default=None)

    def use_inventory(self, inventory: Inventory | None) -> None:
        """Set the host's inventory for admission; None: unknown, so the host is full."""
        self._inventory = inventory
        if inventory is not None:
            inventory = with_limits(inventory, self._limits.reserve, self._limits.ratio_milli)
        self._reserved.capacity = HostCapacity(inventory)
        self._lanes.room_appeared()

    def use_limits(self, welcome: Welcome) -> None:
        """Count the host's capacity with the reserve and overcommitment that operators set."""
        told = HostLimits(welcome.reserve, welcome.ratio_milli)
        if told != self._limits:
            self._limits = told
            try:
                self._store.save_limits(told)
            except OSError as error:
                log.error("the limits of this host could not be written: %s", error)
        self.use_inventory(self._inventory)

    def take_list(self, desired: Desired) -> bool:
        """Replace the desired list; False when its digest does not match."""
        taken = self._take(DesiredList.read(desired))
        if taken and desired.confirms:
            self.start_vms()
        elif taken and self.awaits_list and not self._unconfirmed:
            self._unconfirmed = True
            self._lanes.retry_now("no_lease")  # they wait on, for another reason
        return taken

    def await_list(self) -> None:
        """Start no VM from the list that an earlier boot has left, until `start_vms`."""
        self.awaits_list = self._desired is not None

    def start_vms(self) -> None:
        """Start what the list says: it is confirmed, or nobody answered for long enough."""
        if self.awaits_list:
            self.awaits_list = False
            self._lanes.retry_now("no_lease")
            self._plan()

    def take_delta(self, delta: Delta) -> bool:
        """Apply a delta to the desired list; False when it was made for another list."""
        return self._take(self._desired and self._desired.changed(delta))

    def hear(self, point: LedgerPoint, *, anew: bool) -> None:
        """Store the ledger point of the server; `anew`: of another server, even if it is behind.

        It is kept before anything is done that was ordered with it: a killed agent knows it still.
        """
        if not anew and self.heard is not None and self.heard.seq >= point.seq:
            return
        self.heard = point
        try:
            self._store.save_heard(point)
        except OSError as error:
            log.error("the point of the ledger could not be written: %s", error)
        if anew and self._desired is not None:
            self._desired.point = point
            self._unsaved.set()

    def confirm(self, confirmed: bool) -> None:
        """Record whether the desired list is newer than the lease's last renewal after a gap."""
        self.confirmed = confirmed
        if confirmed:
            self._lanes.retry_now("no_lease")
            self._plan()

    def fence(self) -> None:
        """Stop at once all VMs that may run elsewhere: the lease is over."""
        self.confirmed = False
        for vm_id in sorted(self._movable()):
            self._calls.interrupt(vm_id)
            self._lanes.wake(vm_id, self._order_key(vm_id), now=True)
            if vm_id in self._stuck and vm_id not in self._cuts:
                self._cuts[vm_id] = asyncio.get_running_loop().create_task(self._cut(vm_id))

    async def observe(self) -> None:
        """List the driver's VMs, and wake the lanes of those that are not as ordered."""
        idle = {vm_id for vm_id in self._local if self._lanes.is_idle(vm_id)}
        try:
            listed = await self._ask("list", self._driver.list_vms())
        except DriverError as error:
            log.warning("the driver does not tell what is here: %s", error.message)
            listed = None
        self.known = listed is not None
        if listed is not None:
            here = {vm.id: vm for vm in listed}
            for vm_id in sorted(here.keys() | idle):
                # A lane that worked meanwhile has looked later than this list.
                unseen = vm_id not in self._local
                if (unseen or vm_id in idle) and self._lanes.is_idle(vm_id):
                    self._see(vm_id, here.get(vm_id))
        self._plan()

    async def samples(self) -> list[SampleInfo]:
        """Return the driver's samples; none when it gives none."""
        try:
            return await self._ask("samples", self._driver.samples())
        except DriverError as error:
            log.warning("no samples: %s", error.message)
            return []

    async def flows(self) -> list[FlowInfo]:
        """Return what VMs have sent to other cards, the most first; none when it is not counted."""
        try:
            found = await self._ask("flows", self._driver.flows())
        except DriverError as error:
            if error.message != self._no_flows:
                log.warning("no flows: %s", error.message)
            self._no_flows = error.message
            return []
        self._no_flows = ""
        return most_sent(found)

    async def console(self, vm_id: str, start: int | None, limit: int) -> ConsolePart:
        """Return a piece of a VM's serial log; raises DriverError."""
        return await self._ask("console", self._driver.console(vm_id, start, limit))

    async def inventory(self) -> Inventory | None:
        """Return what the host has, None when the driver cannot tell."""
        try:
            return await self._ask("inventory", self._driver.inventory())
        except DriverError as error:
            log.warning("no inventory: %s", error.message)
            return None

    async def conditions(self) -> list[TaintInfo] | None:
        """Return the taints that the host has by itself now; None when the driver cannot tell."""
        try:
            found = await self._ask("conditions", self._driver.conditions())
        except DriverError as error:
            log.warning("no conditions: %s", error.message)
            return None
        if found != self._conditions:
            self._conditions = found
            self._disk_errors.clear()  # there may be room again
            self._lanes.retry_now(DISK_ERROR)
        return found

    async def save_lists(self) -> None:
        """Keep the newest list on disk, for as long as this runs.

        VMs may be changed before their list is stored: generations that were carried out are
        recorded with the VM, and an older list cannot undo them.
        """
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            if self._desired is None:
                continue
            try:
                await self._store.save_desired(self._desired.as_message())
            except OSError as error:
                log.error("the list could not be stored: %s", error)
                await self._clock.sleep(_SAVE_AGAIN_S)
                self._unsaved.set()

    async def close(self) -> None:
        """Close the lanes and the driver as they stand; VMs run on."""
        await self._lanes.close()
        for cut in self._cuts.values():
            cut.cancel()
        await asyncio.gather(*self._cuts.values(), return_exceptions=True)

    # What it tells

    @property
    def digest(self) -> str:
        """Return the digest of the desired list; empty without one."""
        return self._desired.digest if self._desired else ""

    @property
    def needs_confirming(self) -> bool:
        """Return whether VMs wait for a list that is newer than the lease's renewal."""
        if self.confirmed or self._desired is None:
            return False
        return any(
            needs_confirming(vm, self._records.get(vm.id), self._local.get(vm.id))
            for vm in self._desired.vms.values()
        )

    def is_fenced(self) -> bool:
        """Return whether it is known that nothing executes here that may run elsewhere."""
        return self.known and not self._movable()

    def is_quiet(self) -> bool:
        """Return whether no lane takes a turn."""
        return self._lanes.is_quiet()

    def seen(self) -> dict[str, SeenVM]:
        """Return what is seen of the VMs with an order; without a list, of those with a record."""
        if not self.known:
            return {}
        ids = self._desired.ids() if self._desired else self._records.keys() & self._local.keys()
        found = {
            vm_id: sightings.sighting(
                vm_id,
                self._order(vm_id),
                self._records.get(vm_id),
                self._local.get(vm_id),
                self._doing.get(vm_id),
                self._lanes.failure(vm_id),
                self._progress.get(vm_id),
            )
            for vm_id in sorted(ids)
        }
        return {vm_id: seen for vm_id, seen in found.items() if seen is not None}

    def held(self) -> list[HeldVM]:
        """Return the VMs that are here and on no list, as held."""
        if self._desired is None or not self.known:
            return []
        return within_bounds(
            [
                sightings.held(self._local[vm_id], self._records.get(vm_id))
                for vm_id in sorted(held_ids(self._desired, self._local))
            ]
        )

    def copies(self) -> list[CopyInfo] | None:
        """Return what is here of every VM, or remembered of it; None when that is not known."""
        if not self.known:
            return None
        return [
            sightings.copy_info(
                vm_id, self._records.get(vm_id), self._local.get(vm_id), self._doing.get(vm_id)
            )
            for vm_id in sorted(self._local.keys() | self._records.keys() | self._doing.keys())
        ]

    # Planning

    def _take(self, new: DesiredList | None) -> bool:
        if new is None:
            return False
        self._desired = new
        self._unsaved.set()
        self._plan()
        self.changed.set()
        return True

    def _plan(self) -> None:
        """Wake the lane of every VM that has a step to do."""
        if not self.known:
            return
        self._judge()
        ids = self._local.keys() | (self._desired.ids() if self._desired else set())
        for vm_id in sorted(ids):  # in one order, so that a simulation repeats itself
            step = self._next_step(vm_id)
            if step is None or (step.kind == "destroy" and vm_id not in self._granted):
                continue
            self._lanes.wake(vm_id, self._order_key(vm_id))
            self._interrupt_sending(vm_id)

    def _interrupt_sending(self, vm_id: str) -> None:
        """Leave a sending that is not ordered any more, so that its lane can look at the order."""
        doing, order = self._doing.get(vm_id), self._order(vm_id)
        sends = isinstance(order, DesiredVM) and order.part == "outgoing"
        if doing is not None and doing.kind == "send" and order is not None and not sends:
            self._calls.interrupt(vm_id)

    def look_at(self, vm_id: str) -> None:
        """Wake the lane of a VM that the driver says has changed by itself."""
        self._lanes.wake(vm_id, self._order_key(vm_id), now=True)

    def _judge(self) -> None:
        """Ask the guard against mass destruction which tombstones may act."""
        if self._desired is None:
            return
        wanted = condemned(self._desired, self._records, self._local)
        remains = {vm_id for vm_id in wanted if self._local[vm_id].is_remains}
        known = [vm_id for vm_id, vm in self._local.items() if not vm.is_remains]
        granted = self._teardown.judge(wanted - remains, known, self._clock.monotonic())
        self._granted = granted | remains
        refused = len(wanted - self._granted)
        if refused != self.refused_destroying:
            self.refused_destroying = refused
            self.changed.set()
            if refused:
                log.error("%d of %d VMs are not destroyed: too many at once", refused, len(known))

    def _order(self, vm_id: str) -> Order | None:
        return self._desired.order(vm_id) if self._desired else None

    def _order_key(self, vm_id: str) -> tuple[int, bool] | None:
        order = self._order(vm_id)
        return (order.generation, isinstance(order, Tombstone)) if order else None

    def _next_step(self, vm_id: str) -> Step | None:
        local = self._local.get(vm_id)
        step = next_step(self._order(vm_id), self._records.get(vm_id), local, self._leased())
        return after_boot(step, local, heard=self._unconfirmed) if self.awaits_list else step

    def _leased(self) -> Leased:
        if not self._lease.is_valid(self._clock.monotonic()):
            return Leased.OVER
        return Leased.CONFIRMED if self.confirmed else Leased.HELD

    def _movable(self) -> set[str]:
        """Return the VMs that may execute here and may run elsewhere."""
        ids = {
            vm.id
            for vm in self._local.values()
            if vm.restart == "elsewhere" and vm.state in FENCEABLE
        }
        for vm_id, step in self._doing.items():
            order = self._order(vm_id)
            movable = isinstance(order, DesiredVM) and order.restart == "elsewhere"
            if movable and step.kind in LEASED_STEPS:
                ids.add(vm_id)
        return ids

    # Acting

    async def _take_turn(self, vm_id: str) -> Turn:
        """Take one turn of a VM's lane: look at the VM and take one step."""
        order = self._order(vm_id)
        generation = order.generation if order else 0
        try:
            self._refuse_if_stuck(vm_id)
            try:
                await self._look(vm_id)
            except DriverError as error:
                # Whatever the driver calls it: not to see a VM says nothing about its order.
                return Failure(generation, "transient", error.code, error.message)
            order = self._order(vm_id)
            generation = order.generation if order else 0
            step = self._next_step(vm_id)
            return "done" if step is None else await self._take_step(step, vm_id, order)
        except Stuck as error:
            self._stuck[vm_id] = error.call
            return Failure(generation, error.failure, error.code, error.message)
        except DriverError as error:
            return Failure(generation, error.failure, error.code, error.message)
        except Exception as error:  # a driver's bug costs one VM, not the agent
            log.exception("the driver failed in an unforeseen way for %s", vm_id)
            return Failure(generation, "transient", "driver_error", repr(error))
        finally:
            self._doing.pop(vm_id, None)
            self.changed.set()

    async def _take_step(self, step: Step, vm_id: str, order: Order | None) -> Turn:
        if step.kind in ("refuse", "wait"):
            generation = order.generation if order else 0
            return Failure(generation, step.failure, step.code, step.message)
        if step.kind == "settle":
            await self._settle(vm_id, order)
            return "done"
        if step.kind == "destroy":
            if vm_id not in self._granted:
                return "done"
            # Written down first: with the copy goes what it was told last, and if the agent is
            # killed then, the list that it has kept may be one that would bring the VM back.
            await self._settle(vm_id, order)
        if step.kind == "start" and (wait := self._crashes.wait(vm_id, self._clock.monotonic())):
            assert order is not None
            return Failure(order.generation, "transient", "crash_loop", wait)
        now = self._clock.monotonic()
        if step.kind == "resume" and self._disk_errors.must_wait(vm_id, self._local[vm_id], now):
            assert order is not None
            return Failure(order.generation, "transient", DISK_ERROR, DISK_ERROR_WORDS)
        if step.kind in TAKING and isinstance(order, DesiredVM):
            if not self.known:
                message = "the driver does not tell what is here"
                return Failure(order.generation, "capacity", "unknown_host", message)
            self._reserved.reserve(order)
        self._doing[vm_id] = step
        self.changed.set()
        try:
            budget = self._settings.budgets.of(step.kind, self._settings.stop_grace_s)
            call = self._call(step, vm_id, order)
            await self._calls.within(budget, f"{step.kind} of {vm_id}", call, vm_id)
        except Exception:  # not when the agent itself ends: then nobody waits for a driver
            await self._look_after(vm_id)
            raise
        await self._look_after(vm_id)
        if step.kind in FREEING:
            self._lanes.room_appeared()
        return "again"

    def _call(self, step: Step, vm_id: str, order: Order | None) -> Coroutine[Any, Any, None]:
        driver = self._driver
        if step.kind == "stop":
            grace_s = 0.0 if step.code == FENCED else self._settings.stop_grace_s
            return driver.stop(vm_id, grace_s, step.code)
        if step.kind == "destroy" or not isinstance(order, DesiredVM):
            return driver.destroy(vm_id)
        if step.kind == "withdraw":
            return driver.withdraw(vm_id)
        if step.kind == "send":
            return self._send(order)
        return {
            "start": driver.start,
            "pause": driver.pause,
            "resume": driver.resume,
            "restart": driver.restart,
            "resize": driver.resize,
            "protect": driver.protect,
            "prepare": driver.prepare_incoming,
            "recall": driver.recall,
            "land": driver.land,
        }[step.kind](order)

    async def _send(self, order: DesiredVM) -> None:
        def progress(made: ProgressInfo) -> None:
            self._progress[order.id] = made
            self.changed.set()

        try:
            await self._driver.send(order, progress)
        except BaseException:
            self._progress.pop(order.id, None)  # of a sending that has ended well the last is told
            raise

    async def _settle(self, vm_id: str, order: Order | None) -> None:
        """Record that a VM's order is carried out."""
        if isinstance(order, Tombstone):
            record = Record(vm_id, generation=order.generation, gone=True)
        elif order is not None:
            local, before = self._local.get(vm_id), self._records.get(vm_id)
            amounts = amounts_of(local) if local else before.amounts if before else {}
            text = sightings.order_text(order)
            record = Record(
                vm_id, order.name, order.generation, order.restarts, amounts, order=text
            )
        else:
            return
        try:
            await self._store.save_record(record)
        except OSError as error:
            # Not told before it is kept: who hears of it counts on it after a restart too.
            why = f"cannot write down what was done: {error}"
            raise DriverError("transient", "disk_error", why) from error
        self._records.pop(vm_id, None)  # the newest comes last
        self._records[vm_id] = record
        if record.gone:
            await self._forget_oldest_gone()

    async def _forget_oldest_gone(self) -> None:
        listed = self._desired.ids() if self._desired else set()
        gone = [each.id for each in self._records.values() if each.gone and each.id not in listed]
        for vm_id in gone[: max(0, len(gone) - MOST_GONE)]:
            del self._records[vm_id]
            await self._store.forget_record(vm_id)

    async def _look(self, vm_id: str) -> None:
        self._see(vm_id, await self._ask(f"look at {vm_id}", self._driver.look(vm_id)))

    async def _look_after(self, vm_id: str) -> None:
        """Look at a VM after a step; its reservation holds until the VM is seen."""
        try:
            await self._look(vm_id)
        except DriverError as error:
            log.warning("cannot see what became of %s: %s", vm_id, error.message)
            if (before := self._local.get(vm_id)) is not None:
                # What was seen before the step says nothing any more.
                self._see(vm_id, replace(before, state="unknown"))
        else:
            self._reserved.release(vm_id)

    def _see(self, vm_id: str, vm: LocalVM | None) -> None:
        if vm == self._local.get(vm_id):
            return
        self._crashes.see(vm_id, self._local.get(vm_id), vm, self._clock.monotonic())
        self._disk_errors.see(vm_id, self._local.get(vm_id), vm, self._clock.monotonic())
        if vm is None:
            del self._local[vm_id]
            self._progress.pop(vm_id, None)
        else:
            self._local[vm_id] = vm
        self.changed.set()

    async def _ask(self, what: str, call: Coroutine[Any, Any, T]) -> T:
        return await self._calls.within(self._settings.budgets.ask, what, call)

    def _refuse_if_stuck(self, vm_id: str) -> None:
        call = self._stuck.get(vm_id)
        if call is None:
            return
        if not call.done():
            raise Stuck(f"an earlier call for {vm_id}", call)
        del self._stuck[vm_id]

    async def _cut(self, vm_id: str) -> None:
        """Stop a VM outside its lane, which a hanging driver call keeps busy."""
        try:
            stop = self._driver.stop(vm_id, 0.0, FENCED)
            await self._calls.within(self._settings.budgets.stop, f"fencing of {vm_id}", stop)
            await self._look(vm_id)
        except DriverError as error:
            log.error("%s could not be stopped although it may run elsewhere: %s", vm_id, error)
        finally:
            del self._cuts[vm_id]
