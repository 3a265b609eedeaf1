"""Agents that are broken on purpose: the laws notice each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from msgspec.structs import replace

from roost.agent import converge, reconciler
from roost.agent.budget import Calls
from roost.agent.capacity import Reserved
from roost.agent.converge import Leased, Step
from roost.agent.drivers import virtual
from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtual import VirtualDriver
from roost.agent.fencing.lease import Lease
from roost.agent.memoryguard import MemoryGuard
from roost.agent.reconciler import Reconciler
from roost.agent.talk.session import Session
from roost.agent.teardown import TeardownGuard
from roost.hostkit.lanes import Lanes
from roost.wire.agentlink import DesiredVM, Tombstone
from tests.unit.agent.fleet import one_copy_executes
from tests.unit.agent.one_host import one_host_converges
from tests.unit.agent.test_reconciler import mass_destruction_is_held_back
from tests.unit.agent.test_session_clock import lease_counts_from_sending
from tests.unit.agent.test_virtual import guarded_boot_stays_stopped

Patch = pytest.MonkeyPatch


def converges(seed: int) -> None:
    """A host with faults, crashes and old lists."""
    one_host_converges(seed, 30)


def one_copy(seed: int) -> None:
    """Hosts that are cut off, killed and emptied."""
    one_copy_executes(seed, 20)


@dataclass(frozen=True)
class Mutant:
    """One broken part and the law that must notice it."""

    name: str
    law: Callable[[int], object]
    spoil: Callable[[Patch], None]


MUTANTS: list[Mutant] = []


def broken(law: Callable[[int], object]) -> Callable[[Callable[[Patch], None]], None]:
    """Register a function that breaks something; its docstring says what."""

    def register(spoil: Callable[[Patch], None]) -> None:
        MUTANTS.append(Mutant(spoil.__doc__ or "", law, spoil))

    return register


def use_step(patch: Patch, change: Callable[..., Step | None]) -> None:
    """Let the reconciler decide by another function, which gets the real one first."""
    patch.setattr(reconciler, "next_step", partial(change, converge.next_step))


# One host


@broken(converges)
def _(patch: Patch) -> None:
    """what is missing from the list is destroyed"""

    def step(real, order, record, local, leased):
        return Step("destroy") if order is None and local else real(order, record, local, leased)

    use_step(patch, step)
    patch.setattr(Reconciler, "_judge", lambda self: setattr(self, "_granted", set(self._local)))


@broken(converges)
def _(patch: Patch) -> None:
    """older orders are carried out too"""
    patch.setattr(converge, "carried_out", lambda record, local: 0)


@broken(converges)
def _(patch: Patch) -> None:
    """nobody remembers what was destroyed"""

    def step(real, order, record, local, leased):
        forgotten = record is not None and record.gone and isinstance(order, DesiredVM)
        return real(order, None if forgotten else record, local, leased)

    use_step(patch, step)


@broken(converges)
def _(patch: Patch) -> None:
    """lanes do not wait for their own turn to end"""
    real = Lanes.wake

    def wake(self, vm_id, order, *, now=False):
        lane = self._lanes.get(vm_id)
        if lane is not None and lane.task is not None and lane.retry is None:
            del self._lanes[vm_id]
        real(self, vm_id, order, now=now)

    patch.setattr(Lanes, "wake", wake)


@broken(converges)
def _(patch: Patch) -> None:
    """room is not claimed while a start is under way"""
    real = Reserved.reserve

    def claim(self, vm):
        real(self, vm)
        self._claims.clear()

    patch.setattr(Reserved, "reserve", claim)


@broken(converges)
def _(patch: Patch) -> None:
    """a list that cannot be told looks like an empty host"""
    real = VirtualDriver.list_vms

    async def list_vms(self):
        return await real(self) or []

    patch.setattr(VirtualDriver, "list_vms", list_vms)


@broken(converges)
def _(patch: Patch) -> None:
    """restarts are counted from zero after every start of the agent"""

    def step(real, order, record, local, leased):
        known = record and replace(record, restarts=0)
        return real(order, known, local and replace(local, restarts=None), leased)

    use_step(patch, step)


@broken(converges)
def _(patch: Patch) -> None:
    """a failed turn is never taken again"""
    patch.setattr("roost.hostkit.lanes.LaneBackOff.delay", lambda *_: None)


@broken(converges)
def _(patch: Patch) -> None:
    """tombstones are reported as carried out before they are"""
    real = reconciler.sightings.sighting

    def sighting(vm_id, order, record, local, doing, failure, *rest):
        seen = real(vm_id, order, record, local, doing, failure)
        if isinstance(order, Tombstone) and seen is not None:
            seen.seen = "absent"
        return seen

    patch.setattr(reconciler.sightings, "sighting", sighting)


@broken(converges)
def _(patch: Patch) -> None:
    """driver calls have no time budget"""
    real = Calls.within

    async def within(self, seconds, what, call, vm_id=""):
        return await real(self, 1e9, what, call, vm_id)

    patch.setattr(Calls, "within", within)


@broken(mass_destruction_is_held_back)
def _(patch: Patch) -> None:
    """every tombstone is carried out at once"""
    patch.setattr(TeardownGuard, "judge", lambda self, wanted, known, now: set(wanted))


# Many hosts


@broken(lease_counts_from_sending)
def _(patch: Patch) -> None:
    """the lease is counted from when the renewal is received"""
    real = Session._renewed

    def renewed(self, number):
        self._lease._sent[number] = self._clock.monotonic()
        real(self, number)

    patch.setattr(Session, "_renewed", renewed)


@broken(one_copy)
def _(patch: Patch) -> None:
    """the lease never ends"""
    patch.setattr(Lease, "is_valid", lambda self, now: self.deadline is not None)
    patch.setattr(MemoryGuard, "run", asleep)


async def asleep(self: MemoryGuard) -> None:
    self._alive = True
    await self._clock.sleep(1e9)


@broken(one_copy)
def _(patch: Patch) -> None:
    """the guard says that it is there and does nothing"""
    patch.setattr(MemoryGuard, "run", asleep)


@broken(one_copy)
def _(patch: Patch) -> None:
    """after a gap in the lease the list on hand is believed"""

    def leased(self):
        valid = self._lease.is_valid(self._clock.monotonic())
        return Leased.CONFIRMED if valid or self._lease.deadline else Leased.OVER

    patch.setattr(Reconciler, "_leased", leased)


@broken(one_copy)
def _(patch: Patch) -> None:
    """an incoming copy runs at once"""
    real = VirtualDriver.prepare_incoming

    async def prepare(self, vm):
        await real(self, vm)
        await self.land(vm)

    patch.setattr(VirtualDriver, "prepare_incoming", prepare)


@broken(one_copy)
def _(patch: Patch) -> None:
    """what was sent away runs on"""
    real = virtual._as_ordered

    def as_ordered(vm, state):
        return real(vm, "running" if state == "moved" else state)

    patch.setattr(virtual, "_as_ordered", as_ordered)

    def sighting(vm_id, order, *rest):
        seen = real_sighting(vm_id, order, *rest)
        if seen is not None and seen.seen == "running" and order.part == "outgoing":
            seen.seen = "moved"
        return seen

    real_sighting = reconciler.sightings.sighting
    patch.setattr(reconciler.sightings, "sighting", sighting)


@broken(guarded_boot_stays_stopped)
def _(patch: Patch) -> None:
    """a start goes on although the guard has stopped the VM meanwhile"""

    def forced(states: tuple[str, ...], after: LocalVM):
        return lambda here: after

    patch.setattr(virtual, "_from", forced)


# The tests


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_agent_is_noticed(mutant: Mutant, monkeypatch: Patch) -> None:
    mutant.spoil(monkeypatch)

    def all_seeds() -> None:
        for seed in range(40):
            mutant.law(seed)

    with pytest.raises((AssertionError, TimeoutError)):
        all_seeds()
