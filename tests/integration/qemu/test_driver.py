"""The QEMU driver with guests that are up: what they see and say, and what outlives the agent."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from roost.agent.drivers.base import CRASHED, FENCED, GUEST_SHUTDOWN
from roost.agent.drivers.qemu.driver import QemuDriver
from roost.agent.drivers.qemu.manifest import find_running, folder_name
from roost.agent.drivers.qemu.process import is_alive
from roost.agent.drivers.qemu.sight import PANICKED
from roost.agent.fencing.guard import carry_out
from roost.agent.machine.hostfacts import HostReader
from roost.base.clock import RealClock
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import BootInfo, NicInfo
from tests.guest import boot_info, disk_numbers, image_info, is_unbroken, ticks
from tests.integration.qemu.qemu_host import MIB, QemuHost, becomes, order, says, until

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path: Path) -> Iterator[QemuHost]:
    made = QemuHost(tmp_path)
    yield made
    made.end_all()


def test_a_guest_boots_counts_pauses_survives_the_agent_and_shuts_down_when_asked(
    host: QemuHost,
) -> None:
    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB, boot=boot_info("roost.disk"))
        async with host.opened() as driver:
            await driver.start(vm)
            await says(driver, vm.id, "DISK 3")
            await driver.pause(replace(vm, generation=2, power="paused"))
            standing = await driver.console(vm.id, None, 1 << 20)
        process = host.process(vm.id)
        async with host.opened() as driver:
            found = await driver.look(vm.id)
            assert found is not None
            assert (found.state, found.generation) == ("paused", 2)
            assert (await driver.console(vm.id, standing.end, 100)).text == ""
            await driver.resume(replace(vm, generation=3))
            count = ticks(standing.text)[-1]
            text = await says(driver, vm.id, f"TICK {count + 5} ")
            assert is_unbroken(ticks(text))
            assert host.process(vm.id) == process
            await driver.stop(vm.id, 30.0)
            assert "POWER-BUTTON" in (await driver.console(vm.id, None, 200)).text
            assert not is_alive(process)
            written = disk_numbers((await driver.console(vm.id, None, 1 << 20)).text)[-1]
            await driver.start(replace(vm, generation=4))
            await says(driver, vm.id, f"DISK {written + 2}\r\n")
            await driver.destroy(vm.id)
        assert list(host.settings.vms.iterdir()) == []

    asyncio.run(scenario())


def test_a_guest_shuts_down_for_a_restart_and_writes_all_it_has(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB, boot=boot_info("roost.disk"))
        async with host.opened(stop_grace_s=30.0) as driver:
            await driver.start(vm)
            await says(driver, vm.id, "DISK 3")
            await driver.restart(replace(vm, generation=2, restarts=1))
            before, _, after = (await says(driver, vm.id, "POWER-BUTTON")).partition("POWER-BUTTON")
            written = disk_numbers(before)[-1]
            assert not disk_numbers(after)[:1] or disk_numbers(after)[0] > written
            await says(driver, vm.id, f"DISK {written + 2}\r\n")

    asyncio.run(scenario())


def test_a_guest_that_powers_off_is_stopped_by_itself_and_the_agent_is_told(
    host: QemuHost,
) -> None:
    async def scenario() -> None:
        vm = order(boot=boot_info("roost.poweroff_after=2"))
        told: list[str] = []
        async with host.opened() as driver:
            driver.watch(told.append)
            await driver.start(vm)
            process = host.process(vm.id)
            told.clear()
            await until(lambda: bool(told))
            found = await becomes(driver, vm.id, "stopped")
            assert found.reason == GUEST_SHUTDOWN
            await until(lambda: not is_alive(process))
            assert set(told) == {vm.id}
        async with host.opened() as driver:
            found = await driver.look(vm.id)
            assert found is not None
            assert (found.state, found.reason) == ("stopped", GUEST_SHUTDOWN)

    asyncio.run(scenario())


def test_a_guest_whose_kernel_panics_has_crashed_and_says_why(
    host: QemuHost, tmp_path: Path
) -> None:
    # mov dx, 0x505; mov al, 1; out dx, al; hlt: what Linux writes to pvpanic.
    sector = bytes([0xBA, 0x05, 0x05, 0xB0, 0x01, 0xEE, 0xF4, 0xEB, 0xFD])
    image = tmp_path / "panics.raw"
    image.write_bytes((sector.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0"))

    async def scenario() -> None:
        vm = order(disk_bytes=MIB, boot=BootInfo(image=image_info(image)))
        async with host.opened() as driver:
            await driver.start(vm)
            found = await becomes(driver, vm.id, "stopped")
            assert (found.reason, found.note) == (CRASHED, PANICKED)
            process = host.process(vm.id)
            await driver.start(replace(vm, generation=2))  # as its policy asks
            assert host.process(vm.id) != process

    asyncio.run(scenario())


def test_a_power_off_while_the_agent_was_away_is_known_afterwards(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(boot=boot_info("roost.poweroff_after=2"))
        async with host.opened() as driver:
            await driver.start(vm)
        log = host.vm_folder(vm.id) / "console.log"
        await until(lambda: "TICK 2 " in log.read_text())
        async with host.opened() as driver:
            found = await becomes(driver, vm.id, "stopped")
            assert found.reason == GUEST_SHUTDOWN

    asyncio.run(scenario())


def test_amounts_change_now_or_from_the_next_boot(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB, memory_bytes=128 * MIB)
        async with host.opened() as driver:
            await driver.start(vm)
            await says(driver, vm.id, "GUEST-UP")
            less = replace(vm, generation=2, cpu_milli=1500, memory_bytes=100 * MIB)
            less = replace(less, disk_bytes=96 * MIB)
            await driver.resize(less)
            found = await driver.look(vm.id)
            assert found is not None
            assert (found.disk_bytes, found.note) == (96 * MIB, "")
            await _balloon_is(driver, vm.id, 100 * MIB)
            await driver.resize(replace(less, generation=3, memory_bytes=160 * MIB, cpu_milli=800))
            found = await driver.look(vm.id)
            assert found is not None
            assert "160 MiB of memory hold from the next boot" in found.note
            assert "1 vCPUs hold from the next boot, now it has 2" in found.note
            again = replace(less, generation=4, memory_bytes=160 * MIB, restarts=1, cpu_milli=800)
            await driver.restart(again)
            found = await driver.look(vm.id)
            assert found is not None
            assert (found.note, found.restarts) == ("", 1)
            shape = host.manifest(vm.id).shape
            assert shape is not None
            assert (shape.vcpus, shape.memory_bytes) == (1, 160 * MIB)
            await driver.destroy(vm.id)

    asyncio.run(scenario())


async def _balloon_is(driver: QemuDriver, vm_id: str, size: int) -> None:
    async with asyncio.timeout(30):
        while True:
            samples = {each.vm: each for each in await driver.samples()}
            if vm_id in samples and samples[vm_id].more["balloon_bytes"] == size:
                return
            await asyncio.sleep(0.05)


def test_a_stopped_vm_is_resized_for_its_next_boot(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB)
        async with host.opened() as driver:
            await driver.start(vm)
            await driver.stop(vm.id, 0.0)
            await driver.resize(replace(vm, generation=2, disk_bytes=80 * MIB))
            await driver.resize(replace(vm, generation=3, disk_bytes=70 * MIB))
            found = await driver.look(vm.id)
            assert found is not None
            assert found.state == "stopped"
            assert found.note == "a disk never shrinks: it keeps its 80 MiB"
            await driver.start(replace(vm, generation=4, disk_bytes=70 * MIB))
            found = await driver.look(vm.id)
            assert found is not None
            assert "keeps its 80 MiB" in found.note
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def test_a_disk_lies_over_its_image_for_ever_and_a_seed_is_found(
    host: QemuHost, tmp_path: Path
) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(b"77".ljust(511) + b"\n" + bytes(MIB - 512))

    async def scenario() -> None:
        boot = boot_info("roost.disk roost.seed", image=image, user_data="#cloud-config\n")
        vm = order(boot=boot, disk_bytes=2 * MIB)
        async with host.opened() as driver:
            await driver.start(vm)
            await says(driver, vm.id, "DISK 79")
            text = await says(driver, vm.id, "SEED-END")
            assert "SEED user-data: #cloud-config" in text
            await driver.stop(vm.id, 30.0)
            other = tmp_path / "other.raw"
            other.write_bytes(b"500".ljust(511) + b"\n" + bytes(MIB - 512))
            boot = boot_info("roost.disk", image=other)
            before = (await driver.console(vm.id, None, 0)).end
            await driver.start(replace(vm, generation=2, boot=boot))
            async with asyncio.timeout(60):
                while "DISK-LAST" not in (await driver.console(vm.id, before, 1 << 20)).text:
                    await asyncio.sleep(0.02)
            last = (await driver.console(vm.id, before, 1 << 20)).text
            assert int(last.split("DISK-LAST ")[1].split()[0]) in range(79, 200)
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def test_a_vm_without_user_data_learns_its_name_and_who_it_is(
    host: QemuHost, tmp_path: Path
) -> None:
    image = tmp_path / "image.raw"
    image.write_bytes(bytes(MIB))

    async def scenario() -> None:
        vm = order(boot=boot_info("roost.seed", image=image), disk_bytes=2 * MIB)
        async with host.opened() as driver:
            await driver.start(vm)
            text = await says(driver, vm.id, "SEED-END")
            assert f'SEED meta-data: instance-id: "{vm.id}"' in text
            assert f'SEED meta-data: local-hostname: "{vm.name}"' in text
            assert "SEED user-data: #cloud-config" in text
            found = find_running(host.settings.vms)[folder_name(vm.id)]
            assert found.shape == host.manifest(vm.id).shape
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def test_a_guest_writes_as_often_as_its_host_allows_until_that_changes(host: QemuHost) -> None:
    iops, seconds = 4, 5.0

    async def writes(driver: QemuDriver, vm_id: str) -> float:
        """Return how often a guest writes each second."""
        clock, counted = RealClock(), []
        for pause in (0.0, seconds):
            await clock.sleep(pause)
            text = (await driver.console(vm_id, None, 1 << 20)).text
            counted.append((clock.monotonic(), disk_numbers(text)[-1]))
        (begun, first), (ended, last) = counted
        return (last - first) / (ended - begun)

    async def scenario() -> None:
        vm = order(boot=boot_info("roost.disk=1000"), disk_bytes=2 * MIB)
        async with host.opened(disk_iops=iops) as driver:
            assert "limit:disk" in (await driver.inventory()).capabilities
            await driver.start(vm)
            await says(driver, vm.id, "DISK 3")
            assert await writes(driver, vm.id) <= iops * 1.5
        async with host.opened() as driver:  # an agent that is told otherwise
            await driver.list_vms()
            await becomes(driver, vm.id, "running")
            async with asyncio.timeout(60):
                while await writes(driver, vm.id) < iops * 3:
                    pass
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def test_a_port_on_loopback_reaches_the_guest(host: QemuHost) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        nic = NicInfo(forward=[f"tcp:{port}:80"])
        vm = order(boot=boot_info("roost.net"), nics=[nic])
        async with host.opened() as driver:
            await driver.start(vm)
            text = await says(driver, vm.id, "NET 10.")
            assert " 52:54:00:" in text
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            assert b"hello from the guest" in await asyncio.wait_for(reader.read(), 30)
            writer.close()
            await writer.wait_closed()
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def test_samples_tell_what_a_guest_does(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(disk_bytes=64 * MIB, boot=boot_info("roost.disk=20000"))
        async with host.opened() as driver:
            await driver.start(vm)
            await says(driver, vm.id, "DISK 5")
            async with asyncio.timeout(60):
                while True:
                    sample = next(each for each in await driver.samples() if each.vm == vm.id)
                    if {"dirty_bytes_per_s", "guest_available_bytes"} <= sample.more.keys():
                        break
                    await asyncio.sleep(0.1)
            assert sample.cpu_milli > 0
            assert 0 < sample.memory_bytes < vm.memory_bytes
            assert sample.more["disk_write_bytes"] >= 5 * 512
            assert sample.more["disk_flushes"] >= 5
            assert sample.more["rss_bytes"] > sample.memory_bytes
            resident = sample.more["guest_resident_bytes"]
            assert sample.memory_bytes / 2 < resident <= vm.memory_bytes
            assert "net_sent_bytes" not in sample.more  # a card of mode user has no counters
            assert msgspec.json.encode(sample)
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def test_a_vm_that_may_run_elsewhere_is_killed_by_its_recipe(
    host: QemuHost,
) -> None:
    async def scenario() -> None:
        vm = order(restart="elsewhere")
        async with host.opened() as driver:
            await driver.start(vm)
            recipe = next((host.folder / "fence").glob("*.json"))
            steps = msgspec.json.decode(recipe.read_bytes())
            await until(lambda: carry_out(steps))
            found = await becomes(driver, vm.id, "stopped")
            assert (found.restart, found.reason) == ("elsewhere", FENCED)
        async with host.opened() as driver:
            assert await driver.look(vm.id) == found
            await driver.destroy(vm.id)

    asyncio.run(scenario())


def test_a_start_that_is_cut_off_half_way_never_executes(host: QemuHost) -> None:
    async def scenario() -> None:
        vm = order(restart="elsewhere")
        async with host.opened() as driver:
            starting = asyncio.create_task(driver.start(vm))
            await until(lambda: host.vm_folder(vm.id).exists())
            await driver.stop(vm.id, 0.0, FENCED)
            with pytest.raises(DriverError):
                await starting
            found = await driver.look(vm.id)
            assert found is not None
            assert (found.state, found.reason) == ("stopped", FENCED)
            assert (await driver.console(vm.id, None, 100)).text == ""

    asyncio.run(scenario())


class TwoCells(HostReader):
    """A host that has a second cell, which no VM here is placed on."""

    def cell_numbers(self) -> list[int]:
        """Return the first cell of this machine and one more."""
        return [0, 1]


def test_a_vm_is_bound_to_its_cell(host: QemuHost) -> None:
    cpus = Path("/sys/devices/system/node/node0/cpulist")
    if not cpus.exists():
        pytest.skip("the kernel of this machine knows no NUMA cells")

    async def scenario() -> None:
        async with host.opened(reader=TwoCells(host.folder)) as driver:
            await driver.start(order(cells=[0]))
            process = Path(f"/proc/{host.process('vm-1').pid}")
            allowed = {
                line.split()[1]
                for task in process.glob("task/*/status")
                for line in task.read_text().splitlines()
                if line.startswith("Cpus_allowed_list:")
            }
            assert allowed == {cpus.read_text().strip()}
            assert " bind:0" in (process / "numa_maps").read_text()
            await driver.destroy("vm-1")

    asyncio.run(scenario())
