"""What every driver promises, checked on a real one: call each function with two fresh hosts.

A `Rig` says how to make the driver of a host (again, with a second one on the same VMs, as after
an agent's restart), which orders fit it, and how to let a VM die.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from roost.agent.drivers.base import CRASHED, FENCED, Driver, LocalVM
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM, MoveInfo, ProgressInfo

#: Longer than anything here takes on a busy machine.
PATIENCE_S = 60.0


@dataclass
class Host:
    """One host under test."""

    make: Callable[[], Driver]  # a driver on the host's VMs, as a new agent would make it
    fenced: Callable[[], set[str]]  # the VMs with a stop recipe
    crash: Callable[[str], Awaitable[None]]  # what runs a VM dies
    drivers: list[Driver] = field(default_factory=list)

    def open(self) -> Driver:
        """Return a driver; the one before must be closed."""
        self.drivers.append(self.make())
        return self.drivers[-1]

    async def close(self) -> None:
        """Close every driver, and destroy all VMs."""
        for driver in self.drivers:
            await driver.close()
        last = self.make()
        for vm in await last.list_vms() or ():
            await last.destroy(vm.id)
        await last.close()


@dataclass
class Rig:
    """Two hosts between which VMs can move."""

    here: Host
    there: Host
    order: Callable[..., DesiredVM]  # an order for a small VM, with changes
    grace_s: float = 5.0  # how long a VM gets to shut down

    async def close(self) -> None:
        """Leave nothing behind."""
        await self.here.close()
        await self.there.close()


Check = Callable[[Rig], Awaitable[None]]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Add a promise."""
    CHECKS.append(function)
    return function


async def kept(check: Check, rig: Rig) -> None:
    """Check one promise and clean up."""
    try:
        await check(rig)
    finally:
        await rig.close()


async def state(driver: Driver, vm_id: str) -> str | None:
    """Return the state of a VM, which must be the same in the list."""
    found = await driver.look(vm_id)
    listed = await driver.list_vms()
    assert listed is not None
    assert {each.id: each for each in listed}.get(vm_id) == found
    return found and found.state


async def seen(driver: Driver, vm_id: str) -> LocalVM:
    """Return a VM that must be here."""
    found = await driver.look(vm_id)
    assert isinstance(found, LocalVM)
    return found


async def started(rig: Rig, **changes: object) -> tuple[Driver, DesiredVM]:
    """Return a driver with one running VM."""
    driver, order = rig.here.open(), rig.order(**changes)
    await driver.start(order)
    assert await state(driver, order.id) == "running"
    return driver, order


async def prepared(rig: Rig, order: DesiredVM, **changes: object) -> tuple[Driver, DesiredVM]:
    """Return the driver of the other host with a copy that waits, and the order for it."""
    driver = rig.there.open()
    move = MoveInfo(begun=order.generation + 1)
    incoming = replace(
        order, generation=move.begun, part="incoming", peer="here", move=move, **changes
    )
    await driver.prepare_incoming(incoming)
    assert await state(driver, order.id) == "ready"
    return driver, incoming


async def sent(here: Driver, there: Driver, incoming: DesiredVM) -> list[ProgressInfo]:
    """Send a VM to the copy that waits for it."""
    endpoint = (await seen(there, incoming.id)).endpoint
    outgoing = replace(incoming, part="outgoing", peer="there", endpoint=endpoint)
    made: list[ProgressInfo] = []
    await here.send(outgoing, made.append)
    assert await state(here, incoming.id) == "moved"
    return made


async def landed(there: Driver, order: DesiredVM) -> LocalVM:
    """Let a copy land once it has come whole."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await there.land(order)
            except DriverError as error:
                if (error.failure, error.code) != ("transient", "not_ready"):
                    raise
            else:
                return await seen(there, order.id)
            await asyncio.sleep(0.02)


async def moved(rig: Rig, here: Driver, order: DesiredVM) -> tuple[Driver, DesiredVM]:
    """Move a VM to the other host as the control plane does; it is marked as arrived there."""
    there, incoming = await prepared(rig, order)
    await sent(here, there, incoming)
    all_sent = replace(incoming, generation=incoming.generation + 1, sent=True)
    assert (await landed(there, all_sent)).arrived
    return there, all_sent


async def refused(call: Awaitable[None]) -> DriverError:
    """Demand a DriverError with a class, a code and words."""
    with pytest.raises(DriverError) as raised:
        await call
    assert raised.value.failure in ("transient", "permanent", "capacity")
    assert raised.value.code
    assert raised.value.message
    return raised.value


# The host


@check
async def an_empty_host_is_told_as_empty_and_not_as_unknown(rig: Rig) -> None:
    driver = rig.here.open()
    assert await driver.list_vms() == []
    assert await driver.look("vm-1") is None


@check
async def the_inventory_names_the_driver(rig: Rig) -> None:
    driver = rig.here.open()
    inventory = await driver.inventory()
    assert (inventory.driver, inventory.virtual) == (driver.name, driver.virtual)


@check
async def samples_name_running_vms_and_the_host(rig: Rig) -> None:
    driver, order = await started(rig)
    lying = rig.order(vm_id="vm-2")
    await driver.start(lying)
    await driver.stop(lying.id, rig.grace_s)
    readings = {each.vm: each for each in await driver.samples()}
    assert readings.keys() == {"", order.id}
    assert 0 <= readings[order.id].memory_bytes <= 2 * order.memory_bytes


# Power


@check
async def a_started_vm_shows_what_was_ordered(rig: Rig) -> None:
    driver, order = await started(rig, generation=4)
    found = await seen(driver, order.id)
    assert (found.name, found.generation) == (order.name, 4)
    assert (found.cpu_milli, found.memory_bytes) == (order.cpu_milli, order.memory_bytes)


@check
async def starting_twice_is_starting_once(rig: Rig) -> None:
    driver, order = await started(rig)
    before = await driver.look(order.id)
    await driver.start(order)
    assert await driver.look(order.id) == before


@check
async def a_vm_that_is_ordered_paused_starts_paused(rig: Rig) -> None:
    driver, order = rig.here.open(), rig.order(power="paused")
    for _ in range(2):
        await driver.start(order)
        assert await state(driver, order.id) == "paused"


@check
async def a_new_driver_finds_the_vms_of_an_old_one(rig: Rig) -> None:
    driver, order = await started(rig)
    before = await driver.look(order.id)
    for _ in range(2):
        await driver.close()
    again = rig.here.open()
    assert await again.look(order.id) == before
    await again.stop(order.id, rig.grace_s)
    assert await state(again, order.id) == "stopped"


@check
async def a_stopped_vm_stays_and_starts_again(rig: Rig) -> None:
    driver, order = await started(rig)
    for _ in range(2):  # twice stopped is stopped
        await driver.stop(order.id, rig.grace_s, "asked")
        assert await state(driver, order.id) == "stopped"
    await driver.start(order)
    assert await state(driver, order.id) == "running"


@check
async def a_vm_that_is_cut_off_says_why_also_to_a_new_driver(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.stop(order.id, 0.0, FENCED)
    assert (await seen(driver, order.id)).is_remains
    await driver.close()
    found = await seen(rig.here.open(), order.id)
    assert (found.state, found.reason) == ("stopped", FENCED)


@check
async def stopping_what_is_not_here_is_no_error(rig: Rig) -> None:
    await rig.here.open().stop("nobody", 1.0)


@check
async def a_paused_vm_stands_still_until_it_is_resumed(rig: Rig) -> None:
    driver, order = await started(rig)
    for _ in range(2):
        await driver.pause(replace(order, generation=2, power="paused"))
        assert await state(driver, order.id) == "paused"
    for _ in range(2):
        await driver.resume(replace(order, generation=3))
        assert await state(driver, order.id) == "running"
    assert (await seen(driver, order.id)).generation == 3


@check
async def a_paused_vm_is_found_paused_and_can_be_stopped(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.pause(replace(order, generation=2, power="paused"))
    await driver.close()
    again = rig.here.open()
    assert await state(again, order.id) == "paused"
    await again.stop(order.id, rig.grace_s)
    assert await state(again, order.id) == "stopped"


@check
async def only_what_executes_is_paused_resumed_or_restarted(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.stop(order.id, rig.grace_s)
    for call in (driver.pause, driver.resume, driver.restart):
        await refused(call(replace(order, generation=2, restarts=1)))
    assert await state(driver, order.id) == "stopped"


@check
async def a_restart_leaves_it_running_and_counts(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.restart(replace(order, generation=2, restarts=1))
    found = await seen(driver, order.id)
    assert found.state == "running"
    assert found.restarts in (None, 1)


@check
async def a_resize_changes_the_amounts_and_not_the_state(rig: Rig) -> None:
    driver, order = await started(rig)
    bigger = replace(order, generation=2, memory_bytes=2 * order.memory_bytes)
    await driver.resize(bigger)
    found = await seen(driver, order.id)
    assert (found.state, found.memory_bytes) == ("running", bigger.memory_bytes)


@check
async def a_crashed_vm_is_stopped_and_starts_again(rig: Rig) -> None:
    driver, order = await started(rig)
    await rig.here.crash(order.id)
    found = await seen(driver, order.id)
    assert (found.state, found.reason) == ("stopped", CRASHED)
    await driver.start(order)
    assert await state(driver, order.id) == "running"


@check
async def a_new_driver_sees_what_has_crashed_meanwhile(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.close()
    await rig.here.crash(order.id)
    found = await seen(rig.here.open(), order.id)
    assert (found.state, found.reason) == ("stopped", CRASHED)


@check
async def a_destroyed_vm_is_gone_also_the_second_time(rig: Rig) -> None:
    driver, order = await started(rig)
    for _ in range(2):
        await driver.destroy(order.id)
        assert await state(driver, order.id) is None
    await driver.close()
    assert await rig.here.open().list_vms() == []


@check
async def the_serial_log_is_read_on_from_where_it_ended(rig: Rig) -> None:
    driver, order = await started(rig)
    await refused(driver.console("nobody", None, 100))
    part = await driver.console(order.id, None, 100)
    assert 0 <= part.start <= part.end <= part.start + 100
    after = await driver.console(order.id, part.end, 100)
    assert part.end <= after.start <= after.end
    beyond = await driver.console(order.id, after.end + 10**9, 100)
    assert (beyond.text, beyond.start) == ("", beyond.end)


# Fencing


@check
async def only_what_may_run_elsewhere_has_a_stop_recipe(rig: Rig) -> None:
    driver, order = await started(rig)
    assert rig.here.fenced() == set()
    await driver.protect(replace(order, generation=2, restart="elsewhere"))
    assert rig.here.fenced() == {order.id}
    assert (await seen(driver, order.id)).restart == "elsewhere"
    await driver.protect(replace(order, generation=3, restart="here"))
    assert rig.here.fenced() == set()


@check
async def the_recipe_is_there_while_it_executes_and_gone_with_it(rig: Rig) -> None:
    driver, order = await started(rig, restart="elsewhere")
    assert rig.here.fenced() == {order.id}
    await driver.destroy(order.id)
    assert rig.here.fenced() == set()


@check
async def a_recipe_moves_with_its_vm(rig: Rig) -> None:
    here, order = await started(rig, restart="elsewhere")
    there, _ = await prepared(rig, order)
    await there.close()
    assert rig.there.fenced() <= {order.id}
    there, incoming = rig.there.open(), replace(order, generation=2, part="incoming")
    await sent(here, there, incoming)
    assert rig.here.fenced() == set()
    await landed(there, replace(incoming, generation=3, sent=True))
    assert rig.there.fenced() == {order.id}
    await there.destroy(order.id)
    assert rig.there.fenced() == set()


# Moves


@check
async def a_vm_arrives_by_itself_and_is_landed_by_its_order(rig: Rig) -> None:
    here, order = await started(rig)
    there, all_sent = await moved(rig, here, order)
    found = await seen(there, order.id)
    assert (found.state, found.arrived) == ("running", True)
    await there.land(all_sent)  # twice landed is landed
    assert await there.look(order.id) == found
    await there.land(replace(order, generation=all_sent.generation + 1))
    assert await state(there, order.id) == "running"
    assert not (await seen(there, order.id)).arrived
    await here.destroy(order.id)
    assert await state(there, order.id) == "running"


@check
async def a_vm_comes_back_over_what_it_has_left(rig: Rig) -> None:
    here, order = await started(rig)
    there, all_sent = await moved(rig, here, order)
    await there.land(replace(order, generation=4))
    back = replace(all_sent, generation=5, part="incoming", peer="there", sent=False)
    await here.prepare_incoming(back)
    assert await state(here, order.id) == "ready"
    await sent(there, here, back)
    await landed(here, replace(order, generation=6))
    assert await state(here, order.id) == "running"


@check
async def a_stopped_vm_moves_and_lands_stopped(rig: Rig) -> None:
    here, order = await started(rig)
    await here.stop(order.id, rig.grace_s)
    there, incoming = await prepared(rig, replace(order, power="stopped"))
    await sent(here, there, incoming)
    found = await landed(there, replace(incoming, generation=3, sent=True))
    assert (found.state, found.arrived) == ("stopped", True)
    await there.land(replace(order, generation=4, power="stopped"))
    assert await state(there, order.id) == "stopped"


@check
async def a_paused_vm_moves_and_lands_paused(rig: Rig) -> None:
    here, order = await started(rig)
    paused = replace(order, generation=2, power="paused")
    await here.pause(paused)
    there, _ = await moved(rig, here, paused)
    assert await state(there, order.id) == "paused"


@check
async def what_is_ready_is_ready_also_when_asked_again(rig: Rig) -> None:
    there, incoming = await prepared(rig, rig.order())
    before = await there.look(incoming.id)
    await there.prepare_incoming(incoming)
    assert await there.look(incoming.id) == before
    await there.close()
    assert await rig.there.open().look(incoming.id) == before


@check
async def nothing_is_prepared_over_a_vm_that_is_here(rig: Rig) -> None:
    driver, order = await started(rig)
    await refused(driver.prepare_incoming(replace(order, generation=2, part="incoming")))
    assert await state(driver, order.id) == "running"


@check
async def nothing_lands_that_was_not_prepared(rig: Rig) -> None:
    driver = rig.here.open()
    await refused(driver.land(rig.order()))
    assert await state(driver, "vm-1") is None


@check
async def a_copy_whose_process_dies_is_lost_and_can_be_prepared_anew(rig: Rig) -> None:
    there, incoming = await prepared(rig, rig.order())
    await rig.there.crash(incoming.id)
    assert await state(there, incoming.id) == "lost"
    await refused(there.land(replace(incoming, generation=3, part="run")))
    await there.prepare_incoming(replace(incoming, generation=4))
    assert await state(there, incoming.id) == "ready"


@check
async def a_copy_that_is_stopped_is_lost(rig: Rig) -> None:
    there, incoming = await prepared(rig, rig.order())
    await there.stop(incoming.id, 0.0, FENCED)
    assert await state(there, incoming.id) == "lost"
    await there.close()
    assert await state(rig.there.open(), incoming.id) == "lost"


@check
async def a_copy_that_is_withdrawn_is_gone(rig: Rig) -> None:
    there, incoming = await prepared(rig, rig.order(restart="elsewhere"))
    for _ in range(2):
        await there.withdraw(incoming.id)
        assert await state(there, incoming.id) is None
    assert rig.there.fenced() == set()


@check
async def what_has_arrived_is_not_withdrawn(rig: Rig) -> None:
    here, order = await started(rig)
    there, _ = await moved(rig, here, order)
    error = await refused(there.withdraw(order.id))
    assert (error.failure, error.code) == ("transient", "arrived")
    assert await state(there, order.id) == "running"


@check
async def recalling_what_is_not_sent_changes_nothing(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.recall(replace(order, generation=2))
    assert await state(driver, order.id) == "running"


@check
async def what_was_sent_in_vain_goes_on_or_stops_where_it_was(rig: Rig) -> None:
    here, order = await started(rig)
    there, _ = await moved(rig, here, order)
    await there.destroy(order.id)
    await here.start(replace(order, generation=5))
    assert await state(here, order.id) == "running"
    there, again = await prepared(rig, replace(order, generation=5))
    await sent(here, there, again)
    await there.destroy(order.id)
    await here.stop(order.id, rig.grace_s)
    assert await state(here, order.id) == "stopped"
