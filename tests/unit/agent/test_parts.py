"""The small pure parts: lease, list, books, teardown guard, back-off, sightings."""

import asyncio
from random import Random

import pytest

from roost.agent.capacity import HostCapacity, amounts_of
from roost.agent.converge import Step
from roost.agent.desired import DesiredList
from roost.agent.drivers.base import LocalVM
from roost.agent.fencing.lease import Lease
from roost.agent.sightings import sighting
from roost.agent.store import Record
from roost.agent.teardown import WINDOW_S, TeardownGuard
from roost.hostkit.lanes import Failure, LaneBackOff, Lanes, Turn
from roost.testing.clock import HandClock
from roost.testing.orders import listing, vm
from roost.wire.agentlink import AmountInfo, Delta, DeviceInfo, Inventory, Tombstone

# The lease


def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    lease = Lease()
    lease.sent(1, 100.0)
    assert lease.renewed(1, 10.0)  # received whenever
    assert lease.is_valid(109.9)
    assert not lease.is_valid(110.0)


def test_a_late_renewal_of_an_older_heartbeat_does_not_shorten_the_lease() -> None:
    lease = Lease()
    lease.sent(1, 100.0)
    lease.sent(2, 105.0)
    assert lease.renewed(2, 10.0)
    assert not lease.renewed(1, 10.0)
    assert lease.deadline == 115.0


def test_a_renewal_of_a_heartbeat_that_was_never_sent_counts_for_nothing() -> None:
    lease = Lease()
    assert not lease.renewed(7, 10.0)
    assert not lease.is_valid(0.0)


def test_a_lease_that_was_ended_is_not_revived_by_a_renewal_under_way() -> None:
    lease = Lease()
    lease.sent(1, 100.0)
    lease.void()
    assert not lease.renewed(1, 10.0)
    assert not lease.is_valid(100.0)


# The list


def test_a_delta_for_this_list_gives_the_promised_list() -> None:
    before = DesiredList(listing(vm("a"), vm("b"), Tombstone("c", 4)))
    after = listing(vm("a", 2), Tombstone("b", 3))
    delta = Delta(before.digest, after.digest, [vm("a", 2)], [Tombstone("b", 3)], [], ["c"])
    changed = before.changed(delta)
    assert changed is not None
    assert (changed.vms.keys(), changed.tombstones.keys()) == ({"a"}, {"b"})
    assert before.vms.keys() == {"a", "b"}


def test_a_delta_for_another_list_changes_nothing() -> None:
    before = DesiredList(listing(vm("a")))
    after = listing(vm("a"), vm("b"))
    assert before.changed(Delta(listing().digest, after.digest, [vm("b")])) is None


def test_a_delta_that_does_not_give_what_it_promises_changes_nothing() -> None:
    before = DesiredList(listing(vm("a")))
    promised = listing(vm("a"), vm("b"), vm("c"))
    assert before.changed(Delta(before.digest, promised.digest, [vm("b")])) is None


def test_a_list_that_its_digest_does_not_describe_is_not_read() -> None:
    broken = listing(vm("a"))
    broken.vms.append(vm("b"))
    assert DesiredList.read(broken) is None


def test_of_an_order_and_a_tombstone_the_newer_counts() -> None:
    both = DesiredList(listing(vm("a", 3), Tombstone("a", 2), vm("b", 2), Tombstone("b", 2)))
    assert both.order("a") == vm("a", 3)
    assert both.order("b") == Tombstone("b", 2)


# The books


def books(cpu: int | None = 4000, **more: object) -> HostCapacity:
    amount = AmountInfo(2**40)
    return HostCapacity(Inventory(AmountInfo(cpu), amount, amount, **more))


def test_an_exact_fit_is_admitted_and_one_more_is_not() -> None:
    taken = {"other": {"cpu_milli": 3000}}
    assert books().shortfalls(vm(cpu_milli=1000), taken) == []
    [short] = books().shortfalls(vm(cpu_milli=1001), taken)
    assert short == ("cpu_milli", 1001, 1000)


def test_what_cannot_be_read_is_full() -> None:
    [short] = books(None).shortfalls(vm(), {})
    assert short.free is None
    assert {each.resource for each in HostCapacity(None).shortfalls(vm(), {})} == {
        "cpu_milli",
        "memory_bytes",
        "disk_bytes",
    }


def test_a_vm_that_is_here_needs_room_only_for_its_growth() -> None:
    full = {"vm-1": amounts_of(vm(cpu_milli=3000)), "other": {"cpu_milli": 2000}}
    assert books().shortfalls(vm(cpu_milli=3000), full) == []
    assert books().shortfalls(vm(cpu_milli=3001), full) != []


def test_reserve_and_ratio_make_the_capacity() -> None:
    amount = AmountInfo(2**40)
    stretched = HostCapacity(Inventory(AmountInfo(4000, 1000, 2000), amount, amount))
    assert stretched.shortfalls(vm(cpu_milli=6000), {}) == []
    assert stretched.shortfalls(vm(cpu_milli=6001), {}) != []


def test_a_host_takes_no_more_vms_than_its_limit() -> None:
    assert books(max_vms=1).shortfalls(vm("b"), {"a": {}}) != []
    assert books(max_vms=1).shortfalls(vm("a"), {"a": amounts_of(vm("a"))}) == []


def test_of_a_vm_that_moved_away_only_the_disk_counts() -> None:
    assert amounts_of(LocalVM("a", "a", "moved", 1000, 2**30, 7)) == {"disk_bytes": 7}


def test_a_device_that_another_vm_holds_alone_is_not_given_twice() -> None:
    host = books(devices=[DeviceInfo("gpu", shareable=False), DeviceInfo("gpu")])
    other = LocalVM("b", "b", "running", devices=[0, 1])
    assert host.devices_taken(vm(devices=[0, 1, 2]), [other]) == [0, 2]


# The guard against mass destruction


def names(count: int) -> list[str]:
    return [f"vm-{number:03}" for number in range(count)]


def test_three_vms_may_always_go() -> None:
    assert TeardownGuard().judge(names(3), names(3), 0.0) == set(names(3))


def test_a_list_that_empties_a_host_destroys_only_a_few_at_once() -> None:
    guard = TeardownGuard()
    first = guard.judge(names(40), names(40), 0.0)
    assert len(first) == 10
    assert guard.judge(names(40), names(40), WINDOW_S - 0.1) == first


def test_tombstones_that_trickle_in_are_added_up() -> None:
    guard = TeardownGuard()
    granted = [guard.judge([name], names(10), at / 10) for at, name in enumerate(names(10))]
    assert [bool(each) for each in granted] == [True] * 3 + [False] * 7


def test_the_setting_raises_the_limit() -> None:
    assert TeardownGuard(100).judge(names(40), names(40), 0.0) == set(names(40))


# Back-off


def test_transient_failures_wait_ever_longer_up_to_a_limit() -> None:
    waits = [LaneBackOff(1.0, 60.0).delay("transient", each, Random(1)) for each in range(2000)]
    assert all(wait is not None and wait <= 60.0 for wait in waits)
    assert waits[0] <= 1.0 < waits[3] <= 8.0 < 30.0 <= waits[-1]


def test_permanent_failures_are_not_tried_again() -> None:
    assert LaneBackOff().delay("permanent", 0, Random(1)) is None


def test_a_long_wait_for_one_thing_does_not_lengthen_the_wait_after_another_failure() -> None:
    said = ["no_lease"] * 12 + ["driver_error"]
    at: list[float] = []

    async def take_turn(vm_id: str) -> Turn:
        at.append(clock.now)
        return Failure(1, "transient", said.pop(0), "not now") if said else "done"

    async def run() -> None:
        lanes = Lanes(take_turn, clock=clock, random=Random(1), back_off=LaneBackOff())
        lanes.wake("vm-1", "order")
        await clock.pass_by(3600.0)
        assert not said
        assert lanes.failure("vm-1") is None
        await lanes.close()

    clock = HandClock()
    asyncio.run(run())
    assert at[12] - at[11] > 100.0
    assert at[13] - at[12] <= 1.0


# What is said of a VM

RUNNING = LocalVM("vm-1", "vm-1", "running", generation=1)
DONE = Record("vm-1", "vm-1", 1)


def test_a_step_under_way_is_told_with_the_generation_of_its_order() -> None:
    seen = sighting("vm-1", vm(generation=2), DONE, None, Step("start"), None)
    assert seen is not None
    assert (seen.seen, seen.generation) == ("starting", 2)


def test_a_vm_that_has_arrived_runs_while_it_is_landed_and_a_copy_that_boots_is_starting() -> None:
    arrived = LocalVM("vm-1", "vm-1", "running", generation=1, arrived=True)
    seen = sighting("vm-1", vm(generation=2), DONE, arrived, Step("land"), None)
    assert seen is not None
    assert (seen.seen, seen.generation) == ("running", 1)
    waits = LocalVM("vm-1", "vm-1", "ready", generation=1)
    seen = sighting("vm-1", vm(generation=2), DONE, waits, Step("land"), None)
    assert seen is not None
    assert (seen.seen, seen.generation) == ("starting", 2)


def test_a_vm_that_runs_although_its_resize_failed_is_running_as_before() -> None:
    failure = Failure(2, "capacity", "insufficient_resources", "no room")
    seen = sighting("vm-1", vm(generation=2), DONE, RUNNING, None, failure)
    assert seen is not None
    assert (seen.seen, seen.generation, seen.failure) == ("running", 1, "capacity")


def test_an_error_of_an_older_order_says_nothing_about_a_newer_one() -> None:
    failure = Failure(1, "permanent", "boom", "it broke")
    seen = sighting("vm-1", vm(generation=2), DONE, RUNNING, None, failure)
    assert seen is not None
    assert (seen.seen, seen.failure) == ("running", None)


@pytest.mark.parametrize("state", ["ready", "moved", "stopped"])
def test_a_copy_is_told_as_it_is(state: str) -> None:
    local = LocalVM("vm-1", "vm-1", state, generation=1)
    seen = sighting("vm-1", vm(), DONE, local, None, None)
    assert seen is not None
    assert seen.seen == state
