"""The reconciler on a hand-moved clock: hung drivers, refusals, adoption, what it never does."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import ClassVar

from msgspec.structs import replace

from roost.agent.diskerrors import DISK_ERROR_WORDS
from roost.agent.drivers.base import IO_ERROR, LocalVM
from roost.agent.drivers.virtual import Fault, VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import MemoryVMs
from roost.agent.fencing.lease import Lease
from roost.agent.fencing.recipes import NoGuard
from roost.agent.machine.diskroom import DISK_FULL
from roost.agent.reconciler import Reconciler, ReconcilerSettings
from roost.agent.store import MemoryStore, Record
from roost.agent.talk.registering import HostFacts, Registering
from roost.testing.clock import HandClock
from roost.testing.orders import listing, vm
from roost.wire.agentlink import MOST_HELD_ORDERS, DesiredVM, TaintInfo, Tombstone, Welcome


class Stubborn(VirtualDriver):
    """A driver whose starts of one VM ignore even that they are cancelled."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)
        self.let_go = asyncio.Event()
        self.calls = 0

    async def start(self, vm: DesiredVM) -> None:
        self.calls += vm.id == "stuck"
        while vm.id == "stuck" and not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        await super().start(vm)


class Host:
    """A reconciler with a virtual driver in memory."""

    def __init__(self, driver: type[VirtualDriver] = VirtualDriver, **settings: object) -> None:
        self.clock = HandClock()
        self.vms, self.store = MemoryVMs(), MemoryStore()
        self.lease = Lease(deadline=float("inf"))
        self.kind, self.settings = driver, settings
        self.reborn()

    def reborn(self) -> None:
        """Forget everything that lives in the agent's memory."""
        settings = VirtualSettings(cpu_milli=4000, boot_s=1.0, stop_s=1.0, move_s=1.0)
        self.driver = self.kind(settings, clock=self.clock, vms=self.vms)
        self.reconciler = Reconciler(
            ReconcilerSettings(**self.settings),
            driver=self.driver,
            store=self.store,
            lease=self.lease,
            clock=self.clock,
            random=Random(1),
        )
        self.reconciler.confirmed = True

    async def start(self) -> None:
        self.reconciler.open()
        self.reconciler.use_inventory(await self.driver.inventory())
        await self.reconciler.observe()

    async def order(self, *orders: DesiredVM | Tombstone, wait_s: float = 10.0) -> None:
        assert self.reconciler.take_list(listing(*orders))
        await self.clock.pass_by(wait_s)

    def seen(self, vm_id: str = "vm-1") -> str | None:
        found = self.reconciler.seen().get(vm_id)
        return found and found.seen

    def failure(self, vm_id: str = "vm-1") -> str | None:
        found = self.reconciler.seen().get(vm_id)
        return found and found.failure


def on(host_of: Callable[[], Host], story: Callable[[Host], Awaitable[None]]) -> None:
    async def life() -> None:
        host = host_of()
        await host.start()
        await story(host)
        await host.reconciler.close()

    asyncio.run(life())


def test_a_hanging_start_of_one_vm_does_not_keep_others_from_starting() -> None:
    async def story(host: Host) -> None:
        host.driver.faults.append(Fault("start", vm="vm-1", hang=True, times=1))
        await host.order(vm("vm-1"), vm("vm-2"))
        assert (host.seen("vm-1"), host.seen("vm-2")) == ("starting", "running")
        await host.clock.pass_by(200.0)  # beyond the budget of a start and its back-off
        assert host.seen("vm-1") == "running"

    on(Host, story)


def test_a_call_that_ignores_its_end_keeps_its_own_lane_closed_and_no_other() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("stuck"), vm("vm-2"), wait_s=600.0)
        assert (host.seen("stuck"), host.seen("vm-2")) == ("failed", "running")
        assert host.driver.calls == 1  # never a second call beside the first
        host.driver.let_go.set()
        await host.clock.pass_by(600.0)
        assert host.seen("stuck") == "running"

    on(lambda: Host(Stubborn), story)


def test_a_host_that_starts_without_a_server_counts_by_the_limits_it_was_told() -> None:
    async def story(host: Host) -> None:
        host.reconciler.use_limits(Welcome(1, 1.0, 1.0, 1.0, ratio_milli={"cpu": 2000}))
        four = [vm(f"vm-{n}", cpu_milli=2000) for n in range(4)]
        await host.order(*four)
        await host.store.save_desired(listing(*four))
        await host.reconciler.close()
        host.vms = MemoryVMs()  # the machine and its disk are new, the agent's folder is not
        host.reborn()
        await host.start()
        await host.clock.pass_by(10.0)
        assert [host.seen(f"vm-{n}") for n in range(4)] == ["running"] * 4
        host.reconciler.use_limits(Welcome(1, 1.0, 1.0, 1.0))  # taken back
        await host.order(*(vm(f"vm-{n}", cpu_milli=2000) for n in range(5)))
        assert (host.seen("vm-4"), host.failure("vm-4")) == ("failed", "capacity")

    on(Host, story)


def test_a_hanging_list_leaves_everything_as_it_is() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1"))
        host.driver.faults.append(Fault("list", hang=True, times=1))
        look = asyncio.create_task(host.reconciler.observe())
        await host.clock.pass_by(12.0)
        await look
        assert not host.reconciler.known
        assert host.reconciler.seen() == {}
        assert host.vms.vms["vm-1"].state == "running"

    on(Host, story)


def test_nothing_starts_while_the_driver_cannot_tell_what_is_here() -> None:
    async def story(host: Host) -> None:
        host.driver.faults.append(Fault("list", times=1))
        await host.reconciler.observe()
        await host.order(vm("vm-1"))
        assert host.vms.vms == {}
        await host.reconciler.observe()
        await host.clock.pass_by(5.0)
        assert host.seen() == "running"

    on(Host, story)


def test_a_restarted_agent_adopts_what_runs_without_touching_it() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1", restarts=3))
        saving = asyncio.create_task(host.reconciler.save_lists())
        await host.clock.settle()
        saving.cancel()
        before = dict(host.vms.vms)
        await host.reconciler.close()
        host.reborn()
        await host.start()
        await host.clock.pass_by(10.0)
        assert host.vms.vms == before
        assert host.seen() == "running"

    on(Host, story)


def test_without_a_record_the_number_of_restarts_is_adopted() -> None:
    async def story(host: Host) -> None:
        running = LocalVM("vm-1", "vm-1", "running", 1000, 2**30, 2**30)
        host.vms.vms["vm-1"] = running
        await host.reconciler.observe()
        await host.order(vm("vm-1", restarts=7))
        assert host.vms.vms["vm-1"] == running
        assert host.store.records()[0].restarts == 7

    on(Host, story)


def test_what_is_missing_from_the_list_is_held_and_reported() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1"))
        await host.order()
        assert [held.id for held in host.reconciler.held()] == ["vm-1"]
        assert host.vms.vms["vm-1"].state == "running"

    on(Host, story)


def test_the_orders_of_many_held_vms_are_told_as_far_as_there_is_room() -> None:
    async def story(host: Host) -> None:
        long = {f"label-{number}": "x" * 60 for number in range(32)}
        small = {"cpu_milli": 1, "memory_bytes": 1, "disk_bytes": 1, "labels": long}
        await host.order(*(vm(f"vm-{number}", **small) for number in range(40)))
        await host.order()
        held = host.reconciler.held()
        assert len(held) == 40
        assert held[0].order
        assert sum(len(each.order) for each in held) <= MOST_HELD_ORDERS

    on(Host, story)


def test_without_a_list_nothing_is_held_and_nothing_changes() -> None:
    async def story(host: Host) -> None:
        host.vms.vms["vm-1"] = LocalVM("vm-1", "vm-1", "running")
        await host.reconciler.observe()
        await host.clock.pass_by(10.0)
        assert host.reconciler.held() == []
        assert host.reconciler.digest == ""

    on(Host, story)


def test_a_vm_beyond_capacity_is_refused_and_starts_when_room_appears() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1", cpu_milli=3000), vm("vm-2"), vm("vm-3"))
        refused = [vm_id for vm_id in ("vm-2", "vm-3") if host.failure(vm_id) == "capacity"]
        assert len(refused) == 1
        orders = [Tombstone("vm-1", 2), vm("vm-2"), vm("vm-3")]
        await host.order(*orders, wait_s=2.0)  # far sooner than the periodic retry
        assert host.seen(refused[0]) == "running"

    on(Host, story)


def test_an_incoming_copy_takes_its_room() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1", cpu_milli=3000, part="incoming"))
        assert host.seen("vm-1") == "ready"
        await host.order(vm("vm-1", cpu_milli=3000, part="incoming"), vm("vm-2", cpu_milli=2000))
        assert host.failure("vm-2") == "capacity"

    on(Host, story)


def test_a_permanent_failure_is_tried_again_only_with_a_new_generation() -> None:
    async def story(host: Host) -> None:
        host.driver.faults.append(Fault("start", times=1, failure="permanent"))
        await host.order(vm("vm-1"), wait_s=1000.0)
        await host.order(vm("vm-1"), vm("vm-2"), wait_s=1000.0)
        assert (host.seen("vm-1"), host.failure("vm-1")) == ("failed", "permanent")
        await host.order(vm("vm-1", 2))
        assert host.seen("vm-1") == "running"

    on(Host, story)


def test_a_driver_with_a_bug_costs_one_vm_and_not_the_agent() -> None:
    class Buggy(VirtualDriver):
        async def start(self, vm: DesiredVM) -> None:
            if vm.id == "vm-1":
                raise ZeroDivisionError("a bug")
            await super().start(vm)

    async def story(host: Host) -> None:
        await host.order(vm("vm-1"), vm("vm-2"))
        assert (host.seen("vm-1"), host.seen("vm-2")) == ("failed", "running")

    on(lambda: Host(Buggy), story)


def mass_destruction_is_held_back(_: int = 0) -> None:
    """Order eight of eight VMs destroyed, and one new one started."""

    async def story(host: Host) -> None:
        names = [f"vm-{number}" for number in range(8)]
        await host.order(*(vm(name, cpu_milli=100) for name in names))
        graves = [Tombstone(name, 2) for name in names]
        await host.order(*graves, vm("new", cpu_milli=100), wait_s=2.0)
        assert host.reconciler.refused_destroying == 5
        assert len(host.vms.vms) == 6
        assert host.seen("new") == "running"

    on(Host, story)


def test_mass_destruction_is_held_back_and_told_while_the_rest_converges() -> None:
    mass_destruction_is_held_back()


def test_remains_of_moved_vms_are_cleaned_up_however_many() -> None:
    async def story(host: Host) -> None:
        names = [f"vm-{number}" for number in range(8)]
        await host.order(*(vm(name, cpu_milli=100) for name in names))
        await host.order(*(vm(name, 2, cpu_milli=100, part="outgoing") for name in names))
        assert {host.seen(name) for name in names} == {"moved"}
        await host.order(*(Tombstone(name, 3) for name in names), wait_s=2.0)
        assert (host.vms.vms, host.reconciler.refused_destroying) == ({}, 0)

    on(Host, story)


def test_what_was_destroyed_is_told_until_the_tombstone_leaves_the_list() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1"))
        await host.order(Tombstone("vm-1", 2))
        assert host.seen() == "absent"
        host.reborn()
        host.store._desired = listing(Tombstone("vm-1", 2))
        await host.start()
        assert host.seen() == "absent"
        await host.order()
        assert host.seen() is None

    on(Host, story)


def test_an_old_list_does_not_bring_back_what_was_destroyed() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1"))
        await host.order(Tombstone("vm-1", 2))
        await host.order()
        await host.order(vm("vm-1"))
        assert host.vms.vms == {}

    on(Host, story)


def test_a_vm_that_may_run_elsewhere_stops_when_the_lease_is_over() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1", restart="elsewhere"), vm("vm-2"))
        host.lease.void()
        host.reconciler.fence()
        await host.clock.settle()
        assert (host.seen("vm-1"), host.seen("vm-2")) == ("stopped", "running")
        assert host.vms.vms["vm-1"].reason == "fenced"
        assert host.reconciler.is_fenced()

    on(Host, story)


def test_a_vm_whose_start_hangs_without_end_is_stopped_beside_its_lane() -> None:
    async def story(host: Host) -> None:
        host.vms.vms["stuck"] = LocalVM("stuck", "", "starting", restart="elsewhere")
        await host.reconciler.observe()
        await host.order(vm("stuck", restart="elsewhere"), wait_s=600.0)
        host.lease.void()
        host.reconciler.fence()
        await host.clock.settle()
        assert host.vms.vms["stuck"].state == "stopped"
        host.driver.let_go.set()

    on(lambda: Host(Stubborn), story)


class SlowToEnd(VirtualDriver):
    """Guests that take as long to end as they may."""

    async def stop(self, vm_id: str, grace_s: float, reason: str = "") -> None:
        await self._clock.sleep(grace_s)
        await super().stop(vm_id, 0.0, reason)

    async def restart(self, vm: DesiredVM) -> None:
        await self._clock.sleep(300.0)
        await super().restart(vm)


def test_a_grace_longer_than_the_budget_of_the_step_is_honoured() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1"))
        await host.order(vm("vm-1", generation=2, restarts=1), wait_s=302.0)
        assert host.seen() == "running"
        await host.order(vm("vm-1", generation=3, restarts=1, power="stopped"), wait_s=302.0)
        assert (host.seen(), host.failure()) == ("stopped", None)

    on(lambda: Host(SlowToEnd, stop_grace_s=300.0), story)


class FullDisk(VirtualDriver):
    """A host on whose disk nothing can be written: whoever is resumed stands still at once."""

    resumes = 0
    full: ClassVar[list[TaintInfo]] = [DISK_FULL]

    async def conditions(self) -> list[TaintInfo]:
        return self.full

    async def resume(self, vm: DesiredVM) -> None:
        self.resumes += 1
        if not self.full:
            await super().resume(vm)
            await self._vms.change(vm.id, lambda here: here and replace(here, reason=""))


def test_a_vm_on_a_full_disk_is_resumed_less_and_less_often_and_at_once_when_there_is_room() -> (
    None
):
    async def story(host: Host) -> None:
        await host.order(vm("vm-1"))
        await host.reconciler.conditions()
        stands = replace(host.vms.vms["vm-1"], state="paused", reason=IO_ERROR)
        told = []
        for _ in range(1200):
            host.vms.vms["vm-1"] = stands
            host.reconciler.look_at("vm-1")  # QEMU says STOP
            await host.clock.pass_by(1.0)
            told.append(host.reconciler.seen()["vm-1"].message)
        assert 1 <= host.driver.resumes <= 12
        assert set(told) <= {"", DISK_ERROR_WORDS}
        assert host.seen() == "paused"
        host.driver.full = []
        await host.reconciler.conditions()
        await host.clock.pass_by(1.0)
        assert host.seen() == "running"

    on(lambda: Host(FullDisk), story)


def test_a_host_whose_disk_is_full_is_registered_so_and_anew_when_there_is_room() -> None:
    async def story(host: Host) -> None:
        registering = Registering(
            HostFacts(), driver=host.driver, reconciler=host.reconciler, guard=NoGuard()
        )
        assert (await registering.inventory()).taints == [DISK_FULL]
        assert not await registering.is_outdated()
        host.driver.full = []
        assert await registering.is_outdated()
        assert (await registering.inventory()).taints == []
        assert not await registering.is_outdated()

    on(lambda: Host(FullDisk), story)


def test_a_vm_that_cannot_be_read_is_left_alone_and_told() -> None:
    async def story(host: Host) -> None:
        host.vms.vms["vm-1"] = LocalVM("vm-1", "", "unknown")
        await host.reconciler.observe()
        await host.order(vm("vm-1"))
        assert host.seen() == "failed"
        assert host.vms.vms["vm-1"].state == "unknown"

    on(Host, story)


def test_records_of_destroyed_vms_are_kept_only_so_many(monkeypatch) -> None:
    monkeypatch.setattr("roost.agent.reconciler.MOST_GONE", 3)

    async def story(host: Host) -> None:
        for number in range(6):
            await host.order(Tombstone(f"vm-{number}", 1))
        await host.order(vm("vm-9"))
        gone = [record.id for record in host.store.records() if record.gone]
        assert gone == ["vm-2", "vm-3", "vm-4", "vm-5"]  # the last was on the list when it was cut
        assert Record("vm-5", generation=1, gone=True) in host.store.records()

    on(Host, story)


def test_a_vm_is_destroyed_only_when_an_old_list_cannot_bring_it_back() -> None:
    class FullDisk(MemoryStore):
        full = False

        async def save_record(self, record: Record) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            await super().save_record(record)

    def full_disk() -> Host:
        host = Host()
        host.store = FullDisk()
        host.reborn()
        return host

    async def story(host: Host) -> None:
        await host.start()
        await host.order(vm("vm-1"))
        await host.store.save_desired(listing(vm("vm-1")))  # the last list that is kept
        host.store.full = True
        await host.order(Tombstone("vm-1", 2))
        assert host.seen() == "running"  # were it gone, a restart would bring it back
        host.store.full = False
        await host.clock.pass_by(30.0)
        assert host.seen() == "absent"
        host.reborn()
        await host.start()
        await host.clock.pass_by(10.0)
        assert host.vms.vms == {}

    on(full_disk, story)
