"""The virtual driver keeps every promise of a driver, on files and in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.agent.drivers.base import CRASHED, Driver, Fences, LocalVM
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import FolderVMs, MemoryVMs, VMFiles
from roost.agent.fencing.recipes import FolderFences
from roost.agent.memoryguard import MemoryFences
from roost.base.clock import RealClock
from roost.hostkit.failures import DriverError
from roost.testing.orders import vm
from tests.conformance.drivers import CHECKS, Check, Host, Rig, kept

INSTANT = VirtualSettings(boot_s=0.0, stop_s=0.0, move_s=0.0)


def host(vms: Callable[[], VMFiles], fences: Fences) -> Host:
    def make() -> Driver:
        return VirtualDriver(INSTANT, clock=RealClock(), vms=vms(), fences=fences)

    async def crash(vm_id: str) -> None:
        def dead(here: LocalVM | None) -> LocalVM | None:
            if here is not None and here.state == "ready":
                return replace(here, state="lost", endpoint={})
            return here and replace(here, state="stopped", reason=CRASHED)

        await vms().change(vm_id, dead)

    return Host(make, lambda: set(fences.ids()), crash)


def on_files(folder: Path) -> Host:
    return host(lambda: FolderVMs(folder / "vms"), FolderFences(folder))


def in_memory() -> Host:
    vms = MemoryVMs()
    return host(lambda: vms, MemoryFences())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("where", ["files", "memory"])
def test_the_virtual_driver_promises_that(check: Check, where: str, tmp_path: Path) -> None:
    if where == "files":
        rig = Rig(on_files(tmp_path / "here"), on_files(tmp_path / "there"), vm)
    else:
        rig = Rig(in_memory(), in_memory(), vm)
    asyncio.run(kept(check, rig))


class Forgetful(VirtualDriver):
    """Loses its VMs with the agent, starts anew what runs, and leaves recipes behind."""

    def __init__(self) -> None:
        super().__init__(INSTANT, clock=RealClock(), vms=MemoryVMs())

    async def prepare_incoming(self, vm) -> None:
        await self._vms.change(vm.id, lambda _: None)


def test_a_forgetful_driver_is_found_out() -> None:
    async def nothing(vm_id: str) -> None:
        pass

    found_out = []
    for check in CHECKS:
        rig = Rig(Host(Forgetful, set, nothing), Host(Forgetful, set, nothing), vm)
        try:
            asyncio.run(kept(check, rig))
        except (AssertionError, DriverError, pytest.fail.Exception):
            found_out.append(check.__name__)
    assert "a_new_driver_finds_the_vms_of_an_old_one" in found_out
    assert "a_crashed_vm_is_stopped_and_starts_again" in found_out
    assert "nothing_is_prepared_over_a_vm_that_is_here" in found_out
    assert "only_what_may_run_elsewhere_has_a_stop_recipe" in found_out
