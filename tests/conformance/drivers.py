"""What every driver promises, checked on a real one: call each function with a fresh host.

A `Rig` says how to make the driver of one host (again, with a second one on the same VMs, as after
an agent's restart) and which orders fit it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from roost.agent.drivers.base import Driver, DriverError, LocalVM
from roost.wire.agentlink import DesiredVM


@dataclass
class Rig:
    """One host under test."""

    open: Callable[[], Driver]  # a driver on the host's VMs, as a new agent would make it
    order: Callable[..., DesiredVM]  # an order for a small VM, with changes
    fenced: Callable[[], Awaitable[set[str]]]  # the VMs with a stop recipe


Check = Callable[[Rig], Awaitable[None]]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Add a promise."""
    CHECKS.append(function)
    return function


async def state(driver: Driver, vm_id: str) -> str | None:
    """Return the state of a VM, which must be the same in the list."""
    found = await driver.look(vm_id)
    listed = await driver.list_vms()
    assert listed is not None
    assert {each.id: each for each in listed}.get(vm_id) == found
    return found and found.state


async def started(rig: Rig, **changes: object) -> tuple[Driver, DesiredVM]:
    """Return a driver with one running VM."""
    driver, order = rig.open(), rig.order(**changes)
    await driver.start(order)
    assert await state(driver, order.id) == "running"
    return driver, order


@check
async def an_empty_host_is_told_as_empty_and_not_as_unknown(rig: Rig) -> None:
    driver = rig.open()
    assert await driver.list_vms() == []
    assert await driver.look("vm-1") is None


@check
async def the_inventory_names_the_driver(rig: Rig) -> None:
    driver = rig.open()
    inventory = await driver.inventory()
    assert (inventory.driver, inventory.virtual) == (driver.name, driver.virtual)


@check
async def a_started_vm_shows_what_was_ordered(rig: Rig) -> None:
    driver, order = await started(rig, generation=4)
    found = await driver.look(order.id)
    assert isinstance(found, LocalVM)
    assert (found.name, found.generation) == (order.name, 4)
    assert (found.cpu_milli, found.memory_bytes) == (order.cpu_milli, order.memory_bytes)


@check
async def starting_twice_is_starting_once(rig: Rig) -> None:
    driver, order = await started(rig)
    before = await driver.look(order.id)
    await driver.start(order)
    assert await driver.look(order.id) == before


@check
async def a_new_driver_finds_the_vms_of_an_old_one(rig: Rig) -> None:
    driver, order = await started(rig)
    before = await driver.look(order.id)
    again = rig.open()
    assert await again.look(order.id) == before
    await again.stop(order.id, 5.0)
    assert await state(again, order.id) == "stopped"


@check
async def a_stopped_vm_stays_and_starts_again(rig: Rig) -> None:
    driver, order = await started(rig)
    for _ in range(2):  # twice stopped is stopped
        await driver.stop(order.id, 5.0, "asked")
        assert await state(driver, order.id) == "stopped"
    await driver.start(order)
    assert await state(driver, order.id) == "running"


@check
async def stopping_what_is_not_here_is_no_error(rig: Rig) -> None:
    await rig.open().stop("nobody", 1.0)


@check
async def a_restart_leaves_it_running_and_counts(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.restart(replace(order, generation=2, restarts=1))
    found = await driver.look(order.id)
    assert found is not None
    assert found.state == "running"
    assert found.restarts in (None, 1)


@check
async def a_resize_changes_the_amounts_and_not_the_state(rig: Rig) -> None:
    driver, order = await started(rig)
    bigger = replace(order, generation=2, memory_bytes=2 * order.memory_bytes)
    await driver.resize(bigger)
    found = await driver.look(order.id)
    assert found is not None
    assert (found.state, found.memory_bytes) == ("running", bigger.memory_bytes)


@check
async def a_destroyed_vm_is_gone_also_the_second_time(rig: Rig) -> None:
    driver, order = await started(rig)
    for _ in range(2):
        await driver.destroy(order.id)
        assert await state(driver, order.id) is None


@check
async def a_vm_moves_from_one_state_to_the_next(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.send(replace(order, generation=2, part="outgoing", peer="other"))
    assert await state(driver, order.id) == "moved"
    back = replace(order, generation=3, part="incoming", peer="other")
    for _ in range(2):
        await driver.prepare_incoming(back)
        assert await state(driver, order.id) == "ready"
    await driver.land(replace(order, generation=4))
    assert await state(driver, order.id) == "running"


@check
async def a_stopped_vm_moves_and_lands_stopped(rig: Rig) -> None:
    driver, order = await started(rig)
    await driver.stop(order.id, 5.0)
    await driver.send(replace(order, generation=2, power="stopped", part="outgoing"))
    assert await state(driver, order.id) == "moved"
    await driver.prepare_incoming(replace(order, generation=3, part="incoming"))
    await driver.land(replace(order, generation=4, power="stopped"))
    assert await state(driver, order.id) == "stopped"


@check
async def nothing_is_prepared_over_a_vm_that_is_here(rig: Rig) -> None:
    driver, order = await started(rig)
    await refused(driver.prepare_incoming(replace(order, generation=2, part="incoming")))
    assert await state(driver, order.id) == "running"


@check
async def nothing_lands_that_was_not_prepared(rig: Rig) -> None:
    driver = rig.open()
    await refused(driver.land(rig.order()))
    assert await state(driver, "vm-1") is None


@check
async def only_what_may_run_elsewhere_has_a_stop_recipe(rig: Rig) -> None:
    driver, order = await started(rig)
    assert await rig.fenced() == set()
    await driver.protect(replace(order, generation=2, restart="elsewhere"))
    assert await rig.fenced() == {order.id}
    await driver.protect(replace(order, generation=3, restart="here"))
    assert await rig.fenced() == set()


@check
async def the_recipe_is_there_while_it_executes_and_gone_with_it(rig: Rig) -> None:
    driver, order = await started(rig, restart="elsewhere")
    assert await rig.fenced() == {order.id}
    await driver.send(replace(order, generation=2, part="outgoing"))
    assert await rig.fenced() == set()
    await driver.prepare_incoming(replace(order, generation=3, part="incoming"))
    await driver.land(replace(order, generation=4))
    assert await rig.fenced() == {order.id}
    await driver.destroy(order.id)
    assert await rig.fenced() == set()


@check
async def samples_name_running_vms_and_the_host(rig: Rig) -> None:
    driver, order = await started(rig)
    lying = rig.order(id="vm-2", name="vm-2")
    await driver.start(lying)
    await driver.stop(lying.id, 5.0)
    readings = {each.vm: each for each in await driver.samples()}
    assert readings.keys() == {"", order.id}
    assert 0 <= readings[order.id].memory_bytes <= 2 * order.memory_bytes


async def refused(call: Awaitable[None]) -> None:
    """Demand a DriverError with a class, a code and words."""
    with pytest.raises(DriverError) as raised:
        await call
    assert raised.value.failure in ("transient", "permanent", "capacity")
    assert raised.value.code
    assert raised.value.message
