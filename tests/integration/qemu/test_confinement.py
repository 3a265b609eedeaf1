"""QEMU under its own user and in its own control group: what it may not, and what still works."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.hostkit.machine.limitgroups import LimitGroups
from tests.guest import boot_info, disk_numbers, is_unbroken
from tests.integration.qemu.moving_pair import VM, both, pair
from tests.integration.qemu.qemu_host import MIB, QemuHost, order, says

pytestmark = pytest.mark.slow

USER, NUMBER = "nobody", "65534"


def as_root() -> None:
    """Skip the test for users who cannot become another one."""
    if os.geteuid() != 0:
        pytest.skip("only root can let QEMU run as another user")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[QemuHost]:
    made = QemuHost(tmp_path)
    yield made
    made.end_all()


def status(pid: int) -> dict[str, str]:
    """Return what the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_qemu_is_another_user_without_rights_and_its_guest_writes_grows_and_moves(
    tmp_path: Path,
) -> None:
    as_root()

    async def run() -> None:
        async with both(vm) as (here, there):
            given = {"disk_bytes": 64 * MIB, "boot": boot_info(f"{vm.cmdline} roost.disk")}
            await vm.boot_up(here, **given)
            found = status(vm.here.process(VM).pid)
            assert found["Uid"].split() == [NUMBER] * 4
            assert (found["CapEff"], found["NoNewPrivs"], found["Seccomp"]) == ("0" * 16, "1", "2")
            manifest = vm.here.vm_folder(VM) / "manifest.json"
            assert manifest.stat().st_uid == 0  # what the agent believes is not QEMU's to write
            given["disk_bytes"] = 96 * MIB
            await here.resize(vm.order(**given))
            await says(here, VM, "DISK 3")
            await vm.move(here, there, **given)
            assert status(vm.there.process(VM).pid)["Uid"].split() == [NUMBER] * 4
            await vm.counts_on(vm.here, vm.there)
            assert is_unbroken(disk_numbers(vm.text(vm.here, vm.there)))
            await there.land(vm.order(**given))
            await there.restart(vm.order(restarts=1, **given))
            await there.destroy(VM)

    with pair(tmp_path, run_as=USER) as vm:
        asyncio.run(run())


def test_a_guest_gets_no_more_of_the_cpu_than_it_has(host: QemuHost) -> None:
    groups = LimitGroups(f"test-{os.getpid()}")
    if "limit:cpu" not in groups.held() or not Path("/sys/fs/cgroup/cpu").is_dir():
        pytest.skip("no control groups of version 1 can be made here")
    host.groups = groups

    async def scenario() -> None:
        vm = order(cpu_milli=200, boot=boot_info("roost.dirty=8"))
        async with host.opened() as driver:
            await driver.start(vm)
            pid = host.process(vm.id).pid
            assert f"test-{os.getpid()}" in Path(f"/proc/{pid}/cgroup").read_text()
            await asyncio.sleep(3.0)
            before = used_s(pid)
            await asyncio.sleep(6.0)
            assert used_s(pid) - before < 6.0 * 0.45  # 0.3 cores, and what a busy clock adds
            (folder,) = Path("/sys/fs/cgroup").glob(f"**/cpu/**/test-{os.getpid()}/*.vm")
            assert "nr_throttled 0\n" not in (folder / "cpu.stat").read_text()
            await driver.resize(replace(vm, generation=2, cpu_milli=1000))
            assert (folder / "cpu.cfs_quota_us").read_text() == "110000\n"
            await driver.destroy(vm.id)
            assert not folder.exists()
        assert not folder.parent.exists()

    asyncio.run(scenario())


def used_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
