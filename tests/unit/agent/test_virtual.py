"""The virtual driver: its times, its load, its faults, and the guard that comes between."""

import asyncio
from random import Random

import pytest

from roost.agent.drivers.virtual import Fault, VirtualDriver, VirtualSettings
from roost.agent.drivers.virtualloads import Load
from roost.agent.drivers.vmfiles import MemoryVMs
from roost.agent.memoryguard import MemoryFences, MemoryGuard
from roost.agent.store import MemoryStore
from roost.hostkit.failures import DriverError
from roost.testing.clock import HandClock
from roost.testing.orders import vm


def make(clock: HandClock, **settings: object) -> VirtualDriver:
    return VirtualDriver(VirtualSettings(**settings), clock=clock)


def guarded_boot_stays_stopped(seed: int) -> None:
    """Let the lease end in the middle of a boot: what the guard has stopped does not run."""

    async def story() -> None:
        clock, store, vms, fences = HandClock(), MemoryStore(), MemoryVMs(), MemoryFences()
        store.save_lease(clock.now + Random(seed).uniform(0.5, 2.5))
        settings = VirtualSettings(boot_s=3.0)
        driver = VirtualDriver(settings, clock=clock, vms=vms, fences=fences)
        guard = MemoryGuard(clock=clock, store=store, vms=vms, fences=fences)
        guarding = asyncio.create_task(guard.run())
        starting = asyncio.create_task(driver.start(vm(restart="elsewhere")))
        await clock.pass_by(2.9)
        assert vms.vms["vm-1"].state == "stopped"
        guarding.cancel()
        await clock.pass_by(10.0)
        assert (vms.vms["vm-1"].state, vms.vms["vm-1"].reason) == ("stopped", "fenced")
        with pytest.raises(DriverError, match="is stopped, not starting"):
            await starting

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(5))
def test_a_boot_that_the_guard_has_ended_does_not_go_on(seed: int) -> None:
    guarded_boot_stays_stopped(seed)


def test_boots_and_stops_take_their_time() -> None:
    async def story() -> None:
        clock = HandClock()
        driver = make(clock, boot_s=5.0, stop_s=2.0)
        start = asyncio.create_task(driver.start(vm()))
        await clock.pass_by(4.9)
        found = await driver.look("vm-1")
        assert found is not None
        assert found.state == "starting"
        await clock.pass_by(0.2)
        await start
        stop = asyncio.create_task(driver.stop("vm-1", 1.0))
        await clock.pass_by(1.1)  # the grace is shorter than its own time
        await stop

    asyncio.run(story())


def test_the_same_vms_have_the_same_load_again() -> None:
    async def readings() -> list[int]:
        clock = HandClock()
        driver = make(clock, boot_s=0.0, load=Load(mean=0.5, noise=0.3))
        starts = [asyncio.create_task(driver.start(vm(f"vm-{n}"))) for n in range(3)]
        await clock.settle()
        await asyncio.gather(*starts)
        return [each.cpu_milli for _ in range(5) for each in await driver.samples()]

    first, second = asyncio.run(readings()), asyncio.run(readings())
    assert first == second
    assert 300 <= first[0] <= 700


@pytest.mark.parametrize("failure", ["transient", "permanent", "capacity"])
def test_a_fault_fails_so_many_times_in_its_class(failure: str) -> None:
    async def story() -> None:
        fault = Fault("destroy", times=2, failure=failure, code="boom", vm="vm-1")
        settings = VirtualSettings(faults=(fault,))
        driver = VirtualDriver(settings, clock=HandClock())
        await driver.destroy("vm-2")
        for _ in range(2):
            with pytest.raises(DriverError) as raised:
                await driver.destroy("vm-1")
            assert (raised.value.failure, raised.value.code) == (failure, "boom")
        await driver.destroy("vm-1")
        assert fault.times == 2  # the settings of other hosts are not used up

    asyncio.run(story())
