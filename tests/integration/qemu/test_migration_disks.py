"""Moves of VMs with disks: shared, copied while the guest writes, and copied while it is off."""

import asyncio
import re
from pathlib import Path

from msgspec.structs import replace

from roost.wire.agentlink import BootInfo, MoveInfo
from tests.guest import disk_numbers, image_info, is_unbroken
from tests.integration.qemu.moving_pair import (
    VM,
    Pair,
    Wire,
    abandon,
    both,
    pair,
    refusal,
    run,
    under_way,
)
from tests.integration.qemu.qemu_host import QemuHost, becomes, until

MIB = 1 << 20
DISK = "roost.disk=20000"
SIZE = {"disk_bytes": 16 * MIB}
#: Where the image has bytes that the guest never writes, and what they are.
MARK = "8M 64k"


def image(folder: Path) -> Path:
    """Make an image that begins empty and holds a mark further on."""
    path = folder / "image.qcow2"
    run(folder, "qemu-img", "create", "-q", "-f", "qcow2", str(path), "16M")
    run(folder, "qemu-io", "-f", "qcow2", "-c", f"write -P 7 {MARK}", str(path))
    return path


async def writes_on(vm: Pair, *hosts: QemuHost, more: int = 5) -> None:
    """Wait until the guest has written on at the last host, and see that nothing was left out."""
    begun = len(disk_numbers(vm.text(hosts[-1])))
    await until(lambda: len(disk_numbers(vm.text(hosts[-1]))) >= begun + more)
    text = vm.text(*hosts)
    assert is_unbroken(disk_numbers(text))
    assert "DISK-ERROR" not in text


def check(folder: Path, disk: Path, number: int) -> None:
    """See that a disk is sound and holds a number where the guest has written it."""
    run(folder, "qemu-img", "check", "-q", str(disk))
    shown = run(
        folder, "qemu-io", "-f", "qcow2", "-c", f"read -v {number % 1024 * 512} 16", str(disk)
    )
    written = bytes.fromhex("".join(re.findall(r"^[0-9a-f]{8}:  ((?:[0-9a-f]{2} )+)", shown, re.M)))
    assert int(written) == number


def test_a_shared_disk_is_not_copied_and_loses_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        async with both(vm) as (here, there):
            await vm.boot_up(here, **SIZE)
            await writes_on(vm, vm.here)
            outgoing = await vm.prepare(there, **SIZE)
            assert "nbd" not in outgoing.endpoint
            await vm.send(here, outgoing)
            await vm.arrives(there)
            await writes_on(vm, vm.here, vm.there)
            # The source's remains go, and the disk stays: it belongs to the VM.
            await here.destroy(VM)
            await there.land(vm.order(**SIZE))
            await writes_on(vm, vm.there)
            await there.stop(VM, 0.0)
            (disk,) = shared.glob("*.qcow2")
            check(tmp_path, disk, disk_numbers(vm.text(vm.there))[-1])
            await there.destroy(VM)
            assert not list(shared.glob("*.qcow2"))

    shared = tmp_path / "shared"
    shared.mkdir()
    with pair(tmp_path, DISK, shared_disks=shared) as vm:
        asyncio.run(go())


def test_a_disk_is_copied_while_the_guest_writes_to_it(tmp_path: Path) -> None:
    async def go() -> None:
        async with both(vm) as (here, there):
            boots = {**SIZE, "boot": boot}
            await vm.boot_up(here, **boots)
            await writes_on(vm, vm.here)
            outgoing = await vm.prepare(there, **boots)
            await vm.send(here, outgoing)
            await vm.arrives(there)
            await writes_on(vm, vm.here, vm.there)
            await here.destroy(VM)
            await there.land(vm.order(**boots))
            await there.stop(VM, 0.0)
            disk = vm.there.vm_folder(VM) / "disk.qcow2"
            check(tmp_path, disk, disk_numbers(vm.text(vm.here, vm.there))[-1])
            run(tmp_path, "qemu-io", "-c", f"read -P 7 {MARK}", str(disk))
            # Only what the VM has written itself is in its file; the rest is the image's.
            assert disk.stat().st_size < 2 * MIB

    with pair(tmp_path, DISK) as vm:
        boot = replace(vm.boot, image=image_info(image(tmp_path)))
        asyncio.run(go())


def test_a_copying_that_is_recalled_or_cut_off_leaves_the_vm_and_its_disk(tmp_path: Path) -> None:
    async def go() -> None:
        async with both(vm) as (here, there):
            await vm.boot_up(here, **SIZE)
            slow = MoveInfo(bandwidth_bytes=8 * MIB)
            await abandon(await under_way(here, await vm.prepare(there, slow, **SIZE), vm))
            await here.recall(vm.order(part="returning", **SIZE))
            await writes_on(vm, vm.here)
            await becomes(there, VM, "lost")
            outgoing = await vm.prepare(there, slow, **SIZE)
            wires = {name: Wire(outgoing.endpoint[name]) for name in ("uri", "nbd")}
            async with wires["uri"].laid() as uri, wires["nbd"].laid() as nbd:
                outgoing.endpoint = {**outgoing.endpoint, "uri": uri, "nbd": nbd}
                vm.progress.clear()
                sending = await under_way(here, outgoing, vm)
                for wire in wires.values():
                    wire.cut()
                error = await refusal(sending)
                assert error.code == "migration_stalled"
                await writes_on(vm, vm.here)
            await becomes(there, VM, "lost")
            await vm.move(here, there, **SIZE)
            await writes_on(vm, vm.here, vm.there)
            await there.stop(VM, 0.0)
            disk = vm.there.vm_folder(VM) / "disk.qcow2"
            check(tmp_path, disk, disk_numbers(vm.text(vm.here, vm.there))[-1])

    with pair(tmp_path, DISK, migrate_progress_s=1.5) as vm:
        asyncio.run(go())


def test_a_cold_move_takes_the_disk_along_and_boots_it(tmp_path: Path) -> None:
    async def go() -> None:
        async with both(vm) as (here, there):
            boots: dict[str, object] = {**SIZE, "boot": boot}
            await vm.boot_up(here, **boots)
            await writes_on(vm, vm.here)
            outgoing = await vm.prepare(there, MoveInfo(mode="cold"), **boots)
            assert "uri" not in outgoing.endpoint
            await vm.send(here, outgoing)
            last = disk_numbers(vm.text(vm.here))[-1]
            left = await here.look(VM)
            assert left is not None
            assert left.state == "moved"
            landing = replace(outgoing, part="incoming", sent=True, endpoint={})
            await there.land(landing)
            await vm.arrives(there)
            await until(lambda: "DISK-LAST" in vm.text(vm.there))
            found = re.search(r"DISK-LAST (\d+)", vm.text(vm.there))
            assert found is not None
            # The guest may have written one more than it could still say.
            assert int(found[1]) in (last, last + 1)
            await there.land(vm.order(**boots))
            history = await there.console(VM, None, 1 << 20)
            assert history.start == 0
            whole, before = history.text.replace("\r", ""), vm.text(vm.here)
            assert whole.startswith(before)  # what it wrote at its earlier host
            assert "DISK-LAST" in whole.removeprefix(before)
            await there.stop(VM, 0.0)
            disk = vm.there.vm_folder(VM) / "disk.qcow2"
            run(tmp_path, "qemu-img", "check", "-q", str(disk))
            run(tmp_path, "qemu-io", "-c", f"read -P 7 {MARK}", str(disk))
            assert disk.stat().st_size < 2 * MIB

    with pair(tmp_path, DISK) as vm:
        boot: BootInfo = replace(vm.boot, image=image_info(image(tmp_path)))
        asyncio.run(go())
