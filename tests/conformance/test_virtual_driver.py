"""The virtual driver keeps every promise of a driver, on files and in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from roost.agent.drivers.base import Driver, DriverError, Fences
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import FolderVMs, MemoryVMs, VMFiles
from roost.agent.fencing import FolderFences
from roost.agent.memoryguard import MemoryFences
from roost.base.clock import RealClock
from tests.conformance.drivers import CHECKS, Check, Rig
from tests.unit.agent.fake_control import vm

INSTANT = VirtualSettings(boot_s=0.0, stop_s=0.0, move_s=0.0)


def rig(vms: Callable[[], VMFiles], fences: Fences) -> Rig:
    def open_driver() -> Driver:
        return VirtualDriver(INSTANT, clock=RealClock(), random=Random(1), vms=vms(), fences=fences)

    async def fenced() -> set[str]:
        return set(fences.ids())

    return Rig(open_driver, vm, fenced)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("where", ["files", "memory"])
def test_the_virtual_driver_promises_that(check: Check, where: str, tmp_path: Path) -> None:
    if where == "files":
        made = rig(lambda: FolderVMs(tmp_path / "vms"), FolderFences(tmp_path))
    else:
        kept = MemoryVMs()
        made = rig(lambda: kept, MemoryFences())
    asyncio.run(check(made))


class Forgetful(VirtualDriver):
    """Loses its VMs with the agent, starts anew what runs, and leaves recipes behind."""

    def __init__(self) -> None:
        super().__init__(INSTANT, clock=RealClock(), random=Random(1), vms=MemoryVMs())

    async def prepare_incoming(self, vm) -> None:
        await self._vms.change(vm.id, lambda _: None)


def test_a_forgetful_driver_is_found_out() -> None:
    async def nothing() -> set[str]:
        return set()

    found_out = []
    for check in CHECKS:
        try:
            asyncio.run(check(Rig(Forgetful, vm, nothing)))
        except (AssertionError, DriverError, pytest.fail.Exception):
            found_out.append(check.__name__)
    assert "a_new_driver_finds_the_vms_of_an_old_one" in found_out
    assert "nothing_is_prepared_over_a_vm_that_is_here" in found_out
    assert "only_what_may_run_elsewhere_has_a_stop_recipe" in found_out
