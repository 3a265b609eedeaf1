"""One host under random orders, faults, crashes and restarts, and the laws that always hold.

Watched at every change of a VM and around every driver call: a VM goes only by a tombstone that is
new enough, generations never go back, no two calls work on one VM at once, what was destroyed does
not come back by an old list, and the host is never over its capacity.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from random import Random

from msgspec.structs import replace

from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtual import Fault, VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import Change, MemoryVMs
from roost.agent.fencing.lease import Lease
from roost.agent.reconciler import Reconciler, ReconcilerSettings
from roost.agent.store import MemoryStore
from roost.testing.clock import HandClock
from roost.testing.orders import listing, vm
from roost.wire.agentlink import Delta, Desired, DesiredVM, Tombstone

STEPS = ("start", "stop", "restart", "resize", "destroy", "look")
CPU_MILLI = 6000


class WatchedVMs(MemoryVMs):
    """VMs that check the laws at every change."""

    def __init__(self, orders: "Orders") -> None:
        super().__init__()
        self._orders = orders

    async def change(self, vm_id: str, change: Change) -> LocalVM | None:
        before = self.vms.get(vm_id)
        after = await super().change(vm_id, change)
        if before is not None and after is None:
            highest = self._orders.highest_tombstone.get(vm_id, -1)
            self._law(highest >= before.generation, f"{vm_id} was destroyed without a tombstone")
        if before is not None and after is not None:
            self._law(after.generation >= before.generation, f"{vm_id} went back")
        if before is None and after is not None:
            gone = self._orders.destroyed.get(vm_id, -1)
            self._law(after.generation > gone, f"{vm_id} came back from the dead")
        committed = sum(each.cpu_milli for each in self.vms.values())
        self._law(committed <= CPU_MILLI, f"{committed} millicores on a host of {CPU_MILLI}")
        return after

    def _law(self, holds: bool, broken: str) -> None:
        """Note what is broken: the agent survives whatever its driver raises."""
        if not holds:
            self._orders.broken.append(broken)


class WatchedDriver(VirtualDriver):
    """A driver that notices two calls at once for one VM, and counts restarts."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.working: set[str] = set()
        self.restarted: Counter[str] = Counter()
        self.broken: list[str] = []

    async def _alone(self, vm_id: str, call: Coroutine[object, object, None]) -> None:
        if vm_id in self.working:
            self.broken.append(f"two calls at once for {vm_id}")
        self.working.add(vm_id)
        try:
            await call
        finally:
            self.working.discard(vm_id)

    async def start(self, vm: DesiredVM) -> None:
        await self._alone(vm.id, super().start(vm))

    async def stop(self, vm_id: str, grace_s: float, reason: str = "") -> None:
        await self._alone(vm_id, super().stop(vm_id, grace_s, reason))

    async def restart(self, vm: DesiredVM) -> None:
        await self._alone(vm.id, super().restart(vm))
        self.restarted[vm.id] += 1

    async def resize(self, vm: DesiredVM) -> None:
        await self._alone(vm.id, super().resize(vm))

    async def destroy(self, vm_id: str) -> None:
        await self._alone(vm_id, super().destroy(vm_id))


class Orders:
    """What the control plane wants, and all that it ever wanted."""

    def __init__(self, random: Random) -> None:
        self.now: dict[str, DesiredVM | Tombstone] = {}
        self.broken: list[str] = []
        self.sent: list[Desired] = [listing()]
        self.highest_tombstone: dict[str, int] = {}
        self.destroyed: dict[str, int] = {}  # reported absent at this generation
        self.restarts_asked: Counter[str] = Counter()
        self._random = random
        self._made = 0

    def vms(self) -> list[DesiredVM]:
        return [order for order in self.now.values() if isinstance(order, DesiredVM)]

    def change(self) -> None:
        random, vms = self._random, self.vms()
        what = random.choice(("new", "power", "size", "restart", "delete", "drop", "clean"))
        if what == "new" or not vms:
            self._made += 1
            order = vm(f"vm-{self._made}", cpu_milli=random.choice((500, 1000, 2000)))
            self.now[order.id] = order
            return
        old = random.choice(vms)
        generation = old.generation + random.choice((1, 1, 3))
        if what == "power":
            power = "stopped" if old.power == "running" else "running"
            self.now[old.id] = replace(old, generation=generation, power=power)
        elif what == "size":
            size = random.choice((500, 1000, 2000))
            self.now[old.id] = replace(old, generation=generation, cpu_milli=size)
        elif what == "restart":
            self.restarts_asked[old.id] += 1
            restarts = old.restarts + 1
            self.now[old.id] = replace(old, generation=generation, restarts=restarts)
        elif what == "delete":
            self.now[old.id] = Tombstone(old.id, generation)
            self.highest_tombstone[old.id] = generation
        elif what == "drop":
            del self.now[old.id]
        else:
            for order in [each for each in self.now.values() if isinstance(each, Tombstone)]:
                if order.id in self.destroyed:
                    del self.now[order.id]

    def whole(self) -> Desired:
        self.sent.append(listing(*self.now.values()))
        return self.sent[-1]

    def delta(self) -> Delta:
        """Return the difference to some list of the past, which may not be the agent's."""
        base = self._random.choice(self.sent[-3:])
        new = self.whole()
        old_vms = {each.id: each for each in base.vms}
        old_tombstones = {each.id: each for each in base.tombstones}
        named = {each.id for each in (*new.vms, *new.tombstones)}
        return Delta(
            base.digest,
            new.digest,
            [each for each in new.vms if old_vms.get(each.id) != each],
            [each for each in new.tombstones if old_tombstones.get(each.id) != each],
            [vm_id for vm_id in old_vms if vm_id not in named],
            [vm_id for vm_id in old_tombstones if vm_id not in named],
        )


class OneHost:
    """A host with a reconciler that is killed and started again."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = HandClock()
        self.orders = Orders(self.random)
        self.vms = WatchedVMs(self.orders)
        self.store = MemoryStore()
        self.driver = self._driver()
        self.reconciler = self._reconciler()
        self.reported: dict[str, int] = {}  # the highest generation said to be carried out

    def _driver(self) -> WatchedDriver:
        settings = VirtualSettings(cpu_milli=CPU_MILLI, boot_s=2.0, stop_s=1.0)
        return WatchedDriver(settings, clock=self.clock, vms=self.vms)

    def _reconciler(self) -> Reconciler:
        lease = Lease(deadline=float("inf"))
        reconciler = Reconciler(
            ReconcilerSettings(max_destroy=1000),
            driver=self.driver,
            store=self.store,
            lease=lease,
            clock=self.clock,
            random=self.random,
        )
        reconciler.confirmed = True
        return reconciler

    async def start(self) -> None:
        self.reconciler.open()
        self.reconciler.use_inventory(await self.driver.inventory())
        await self.observe()
        self.saving = asyncio.create_task(self.reconciler.save_lists())

    async def kill(self) -> None:
        """End the agent where it stands; its VMs stay."""
        self.saving.cancel()
        await self.reconciler.close()
        faults = self.driver.faults
        self.driver = self._driver()
        self.driver.faults = faults
        self.reconciler = self._reconciler()
        await self.start()

    async def observe(self) -> None:
        """Observe while time can pass: the driver may hang."""
        task = asyncio.create_task(self.reconciler.observe())
        for _ in range(100):
            await self.clock.settle()
            if task.done():
                break
            await self.clock.pass_by(1.0)
        await task

    def note(self) -> None:
        """Look at what would be reported, and whether a law was broken."""
        assert not self.orders.broken
        assert not self.driver.broken
        if not self.reconciler.known:
            return
        for vm_id, seen in self.reconciler.seen().items():
            if seen.seen == "absent":
                assert vm_id not in self.vms.vms, f"{vm_id} is said to be absent"
                self.orders.destroyed[vm_id] = seen.generation
            if seen.failure is None and seen.seen in ("running", "stopped"):
                before = self.reported.get(vm_id, 0)
                assert seen.generation >= before, f"{vm_id} was reported at {before} before"
                self.reported[vm_id] = seen.generation
        held = {each.id for each in self.reconciler.held()}
        assert held <= self.vms.vms.keys()

    async def do_something(self) -> None:
        """Take one random step."""
        random, reconciler = self.random, self.reconciler
        what = random.choice(("order",) * 6 + ("old", "kill", "fault", "crash", "blind", "wait"))
        if what == "order":
            for _ in range(random.randint(1, 3)):
                self.orders.change()
            if random.random() < 0.5 or not reconciler.take_delta(self.orders.delta()):
                assert reconciler.take_list(self.orders.whole())
        elif what == "old":
            reconciler.take_list(random.choice(self.orders.sent))
        elif what == "kill":
            await self.kill()
        elif what == "fault":
            self.driver.faults.append(self._fault())
        elif what == "crash" and self.vms.vms:
            here = random.choice(list(self.vms.vms.values()))
            if here.state == "running" and here.id not in self.driver.working:
                self.vms.vms[here.id] = replace(here, state="stopped")
        elif what == "blind":
            self.driver.faults.append(Fault("list", times=1))
        await self.clock.pass_by(random.choice((0.1, 1.0, 3.0, 20.0)))
        await self.observe()
        self.note()

    def _fault(self) -> Fault:
        failure = self.random.choice(("transient", "permanent", "capacity"))
        step, hang = self.random.choice(STEPS), self.random.random() < 0.3
        return Fault(step, self.random.randint(1, 3), failure=failure, hang=hang)

    async def come_to_rest(self) -> None:
        """Let all faults end and send a last list that fits; then everything is so.

        Only what failed for good, or is ordered otherwise, gets a new generation.
        """
        self.driver.faults.clear()
        assert self.reconciler.take_list(self.orders.whole())
        await self.clock.pass_by(400.0)  # beyond every call that still hangs
        await self.observe()
        room = CPU_MILLI - sum(
            each.cpu_milli
            for vm_id, each in self.vms.vms.items()
            if not isinstance(self.orders.now.get(vm_id), Tombstone)
        )
        seen = self.reconciler.seen()
        for vm_id, order in list(self.orders.now.items()):
            last = order
            if isinstance(order, DesiredVM) and vm_id in self.vms.vms:
                last = replace(order, cpu_milli=self.vms.vms[vm_id].cpu_milli)
            elif isinstance(order, DesiredVM) and order.cpu_milli > room:
                del self.orders.now[vm_id]
                continue
            elif isinstance(order, DesiredVM):
                room -= order.cpu_milli
            given_up = vm_id in seen and seen[vm_id].failure == "permanent"
            if given_up or last != order:
                last = replace(last, generation=order.generation + 5)
            if isinstance(order, Tombstone):
                self.orders.highest_tombstone[vm_id] = last.generation
            self.orders.now[vm_id] = last
        assert self.reconciler.take_list(self.orders.whole())
        for _ in range(30):
            await self.clock.pass_by(20.0)
            await self.observe()
            self.note()

    def check_converged(self) -> None:
        """Everything is as ordered, and what is on no list is still here."""
        here, seen = self.vms.vms, self.reconciler.seen()
        for vm_id, order in self.orders.now.items():
            local = here.get(vm_id)
            if isinstance(order, Tombstone):
                assert local is None
                assert seen[vm_id].seen == "absent"
            elif local is None:
                assert order.power == "stopped"
            else:
                assert (local.state, local.cpu_milli) == (order.power, order.cpu_milli)
            assert seen[vm_id].generation == order.generation
            assert seen[vm_id].failure is None
        held = {each.id for each in self.reconciler.held()}
        assert held == here.keys() - self.orders.now.keys()
        for vm_id, count in self.driver.restarted.items():
            assert count <= self.orders.restarts_asked[vm_id], f"{vm_id} restarted too often"

    async def end(self) -> None:
        self.saving.cancel()
        await self.reconciler.close()


def one_host_converges(seed: int, steps: int) -> None:
    """Live through so many random steps, then come to rest."""

    async def life() -> None:
        host = OneHost(seed)
        await host.start()
        for _ in range(steps):
            await host.do_something()
        await host.come_to_rest()
        host.check_converged()
        await host.end()

    asyncio.run(life())
