"""What goes wrong with real VMs: each fault ends in an error that says why and hurts no other."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.agent.drivers.base import CRASHED
from roost.agent.drivers.qemu.driver import QemuDriver
from roost.agent.drivers.qemu.process import is_alive
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import BootInfo, DesiredVM, ImageInfo, NicInfo
from tests.guest import boot_info
from tests.integration.qemu.qemu_host import MIB, QemuHost, becomes, order, says, until

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path: Path) -> Iterator[QemuHost]:
    made = QemuHost(tmp_path)
    yield made
    made.end_all()


async def failing_start(driver: QemuDriver, vm: DesiredVM) -> DriverError:
    with pytest.raises(DriverError) as raised:
        await driver.start(vm)
    return raised.value


def test_what_qemu_says_when_it_does_not_start_reaches_the_user(host: QemuHost) -> None:
    async def scenario() -> None:
        async with host.opened(cpu_model="abacus") as driver:
            error = await failing_start(driver, order())
            assert (error.failure, error.code) == ("permanent", "qemu_failed")
            assert "unable to find CPU model 'abacus'" in error.message
            found = await driver.look("vm-1")
            assert found is not None
            assert (found.state, found.reason) == ("stopped", "")
        async with host.opened() as driver:
            await driver.start(order())
            await driver.destroy("vm-1")

    asyncio.run(scenario())


def test_a_qemu_that_does_not_start_is_no_news(host: QemuHost) -> None:
    # News are a reason to try again what has failed for good: the agent would never rest.
    async def scenario() -> None:
        told: list[str] = []
        async with host.opened(cpu_model="abacus") as driver:
            driver.watch(told.append)
            for _ in range(5):
                assert (await failing_start(driver, order())).failure == "permanent"
            await asyncio.sleep(0.2)
            assert told == []

    asyncio.run(scenario())


def test_a_missing_binary_image_or_default_is_named(host: QemuHost, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with host.opened(binary="/no/such/qemu") as driver:
            error = await failing_start(driver, order())
            assert (error.code, "/no/such/qemu" in error.message) == ("no_qemu", True)
        async with host.opened(default_boot=None) as driver:
            error = await failing_start(driver, order("vm-2"))
            assert (error.failure, error.code) == ("permanent", "no_image")
            assert await driver.look("vm-2") is None
        gone = ImageInfo("sha256:" + "0" * 64, (tmp_path / "gone").as_uri())
        async with host.opened() as driver:
            error = await failing_start(driver, order("vm-3", boot=BootInfo(kernel=gone)))
            assert "gone" in error.message
            found = await driver.look("vm-3")
            assert found is not None
            assert found.state == "stopped"

    asyncio.run(scenario())


def test_a_taken_port_is_tried_again_later(host: QemuHost) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            nic = NicInfo(forward=[f"tcp:{taken.getsockname()[1]}:80"])
            async with host.opened() as driver:
                error = await failing_start(driver, order(nics=[nic]))
        assert error.failure == "transient"
        assert "host forwarding" in error.message

    asyncio.run(scenario())


def test_a_killed_qemu_has_crashed_and_the_agent_hears_of_it(host: QemuHost) -> None:
    async def scenario() -> None:
        told: list[str] = []
        async with host.opened() as driver:
            driver.watch(told.append)
            await driver.start(order())
            told.clear()
            os.kill(host.process("vm-1").pid, signal.SIGKILL)
            await until(lambda: told == ["vm-1"], within_s=5.0)
            found = await driver.look("vm-1")
            assert found is not None
            assert (found.state, found.reason) == ("stopped", CRASHED)
            await driver.stop("vm-1", 1.0)
            await driver.destroy("vm-1")

    asyncio.run(scenario())


def test_a_guest_that_ignores_power_down_is_ended_after_its_grace(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(boot=boot_info("roost.ignore_powerdown"))
        async with host.opened() as driver:
            await driver.start(vm)
            await says(driver, vm.id, "TICK 1 ")
            process = host.process(vm.id)
            began = asyncio.get_running_loop().time()
            await driver.stop(vm.id, 1.0, "asked")
            assert 1.0 <= asyncio.get_running_loop().time() - began < 10.0
            assert not is_alive(process)
            found = await driver.look(vm.id)
            assert found is not None
            assert (found.state, found.reason) == ("stopped", "asked")

    asyncio.run(scenario())


def test_a_qemu_that_hangs_is_unknown_and_delays_no_other(host: QemuHost) -> None:
    async def scenario() -> None:
        async with host.opened(ask_s=0.5) as driver:
            await asyncio.gather(driver.start(order()), driver.start(order("vm-2")))
            await host.kill("vm-1", signal.SIGSTOP)
            began = asyncio.get_running_loop().time()
            listed = {vm.id: vm for vm in await driver.list_vms() or ()}
            assert asyncio.get_running_loop().time() - began < 5.0
            assert {vm.id: vm.state for vm in listed.values()} == {
                "vm-1": "unknown",
                "vm-2": "running",
            }
            assert listed["vm-1"].memory_bytes == order().memory_bytes  # unknown is not free
            with pytest.raises(DriverError) as raised:
                await driver.look("vm-1")
            assert (raised.value.failure, raised.value.code) == ("transient", "qmp_silent")
            assert [each.vm for each in await driver.samples() if each.vm] == ["vm-2"]
        async with host.opened(ask_s=0.5) as driver:
            listed = {vm.id: vm for vm in await driver.list_vms() or ()}
            assert listed["vm-1"].state == "unknown"
            await host.kill("vm-1", signal.SIGCONT)
            await becomes_again(driver, "vm-1")
            await host.kill("vm-1", signal.SIGSTOP)
            await driver.stop("vm-1", 0.5)
            found = await driver.look("vm-1")
            assert found is not None
            assert found.state == "stopped"

    asyncio.run(scenario())


async def becomes_again(driver: QemuDriver, vm_id: str) -> None:
    async with asyncio.timeout(30):
        while True:
            listed = {vm.id: vm.state for vm in await driver.list_vms() or ()}
            if listed[vm_id] == "running":
                return
            await asyncio.sleep(0.05)


def test_a_qemu_whose_socket_is_gone_is_unknown_and_can_be_cut_off(host: QemuHost) -> None:
    async def scenario() -> None:
        async with host.opened() as driver:
            await driver.start(order())
        (host.vm_folder("vm-1") / "qmp.sock").unlink()
        process = host.process("vm-1")
        async with host.opened() as driver:
            with pytest.raises(DriverError) as raised:
                await driver.look("vm-1")
            assert (raised.value.failure, raised.value.code) == ("transient", "qmp_gone")
            with pytest.raises(DriverError):
                await driver.start(order())
            assert is_alive(process)  # it may run, so no second one may
            await driver.stop("vm-1", 0.1)
            assert not is_alive(process)
            await driver.start(order(generation=2))
            await driver.destroy("vm-1")

    asyncio.run(scenario())


@pytest.mark.turns(2)
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "both", "zeros"])
def test_a_running_vm_with_a_damaged_manifest_is_adopted(host: QemuHost, damage: str) -> None:
    async def scenario() -> None:
        vm = order(generation=3, name="a,b=c", restart="elsewhere")
        async with host.opened() as driver:
            await driver.start(vm)
            before = await driver.look(vm.id)
        folder = host.vm_folder(vm.id)
        _damage(folder, damage)
        async with host.opened() as driver:
            found = await driver.look(vm.id)
            assert found is not None
            assert (found.state, found.name) == ("running", "a,b=c")
            assert found.memory_bytes == vm.memory_bytes
            if damage != "both":
                assert found == before
            await driver.start(vm)
            await driver.resize(replace(vm, generation=4))
            await driver.pause(replace(vm, generation=5, power="paused"))
            assert host.manifest(vm.id).order.generation == 5
        async with host.opened() as driver:
            await becomes(driver, vm.id, "paused")
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def _damage(folder: Path, damage: str) -> None:
    manifest, before = folder / "manifest.json", folder / "manifest.before"
    data = manifest.read_bytes()
    match damage:
        case "truncated":
            manifest.write_bytes(data[: len(data) // 2])
        case "empty":
            manifest.write_bytes(b"")
        case "missing":
            manifest.unlink()
        case "both":
            manifest.write_bytes(b"{")
            before.unlink()
        case _:
            manifest.write_bytes(b"\0" * len(data))


def test_a_stopped_vm_whose_manifest_is_lost_is_unknown_and_never_absent(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB)
        async with host.opened() as driver:
            await driver.start(vm)
            await driver.stop(vm.id, 0.0)
        (host.vm_folder(vm.id) / "manifest.json").write_bytes(b"{")
        async with host.opened() as driver:
            found = await driver.look(vm.id)
            assert found is not None
            assert found.state == "unknown"
            with pytest.raises(DriverError):
                await driver.start(vm)
            assert (host.vm_folder(vm.id) / "disk.qcow2").exists()
            await driver.destroy(vm.id)
            assert await driver.list_vms() == []

    asyncio.run(scenario())


def test_a_disk_that_is_gone_is_not_made_anew(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB)
        async with host.opened() as driver:
            await driver.start(vm)
            await driver.stop(vm.id, 0.0)
            (host.vm_folder(vm.id) / "disk.qcow2").unlink()
            error = await failing_start(driver, vm)
            assert (error.failure, error.code) == ("permanent", "disk_missing")

    asyncio.run(scenario())


def test_an_agent_killed_as_it_starts_a_vm_leaves_no_second_one(host: QemuHost) -> None:
    async def scenario() -> None:
        async with host.opened() as driver:
            await driver.start(order())
        process = host.process("vm-1")
        folder = host.vm_folder("vm-1")
        before = (folder / "manifest.before").read_bytes()
        (folder / "manifest.json").write_bytes(before)  # as it was before the process was known
        async with host.opened() as driver:
            found = await driver.look("vm-1")
            assert found is not None
            assert found.state == "running"
            await driver.start(order())
            assert host.process("vm-1") == process
            await driver.destroy("vm-1")

    asyncio.run(scenario())


def test_a_full_disk_stops_a_vm_until_there_is_room(host: QemuHost, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "roost-test", str(small)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"a small file system takes the right to mount: {done.stderr.strip()}")
    filler = small / "filler"

    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB, boot=boot_info("roost.disk=20000"))
        async with host.opened(shared_disks=small) as driver:
            await driver.start(vm)
            await says(driver, vm.id, "DISK 1")
            with pytest.raises(OSError, match="No space left"):
                filler.write_bytes(bytes(4 * MIB))
            found = await becomes(driver, vm.id, "paused")
            assert "maybe the host's is full" in found.note
            other = order("vm-2", disk_bytes=64 * MIB)
            error = await failing_start(driver, other)
            assert error.failure == "transient"
            filler.unlink()
            await driver.resume(replace(vm, generation=2))
            found = await driver.look(vm.id)
            assert found is not None
            count = (await driver.console(vm.id, None, 1 << 20)).text.count("DISK ")
            async with asyncio.timeout(60):
                while (await driver.console(vm.id, None, 1 << 20)).text.count("DISK ") <= count:
                    await asyncio.sleep(0.05)
            assert "DISK-ERROR" not in (await driver.console(vm.id, None, 1 << 20)).text
            await driver.destroy(vm.id)
            await driver.destroy("vm-2")
            assert list(small.iterdir()) == []

    try:
        asyncio.run(scenario())
    finally:
        host.end_all()
        subprocess.run(["umount", str(small)], check=True)


def test_a_manifest_that_cannot_be_written_fails_the_start_and_leaves_nothing_running(
    host: QemuHost,
) -> None:
    async def scenario() -> None:
        async with host.opened() as driver:
            assert await driver.list_vms() == []
            host.settings.vms.rmdir()
            host.settings.vms.write_bytes(b"")  # a file where the folder should be
            error = await failing_start(driver, order())
            assert (error.failure, error.code) == ("transient", "not_written")
            host.settings.vms.unlink()

    asyncio.run(scenario())
