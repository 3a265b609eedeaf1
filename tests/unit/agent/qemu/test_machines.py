"""A VM keeps the versioned machine that it was made with."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from roost.agent.drivers.qemu.command import BARE_SEED, DEVICES, shape_of
from roost.agent.drivers.qemu.launch import boot_shape
from roost.agent.drivers.qemu.machines import read_aliases, resolve_machine
from roost.agent.drivers.qemu.manifest import Manifest
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.testing.orders import vm
from roost.wire.agentlink import BootInfo, ImageInfo

HELP = """Supported machines are:
microvm              microvm (i386)
pc                   Standard PC (i440FX + PIIX, 1996) (alias of pc-i440fx-7.2)
pc-i440fx-7.2        Standard PC (i440FX + PIIX, 1996) (default)
q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-7.2)
"""


def qemu(folder: Path, words: str) -> str:
    (folder / "help").write_text(words)
    binary = folder / "qemu"
    binary.write_text(f"#!/bin/sh\ncat {folder}/help\n")
    binary.chmod(0o755)
    return str(binary)


def test_an_alias_is_resolved_as_this_qemu_means_it(tmp_path: Path) -> None:
    assert read_aliases(HELP) == {"pc": "pc-i440fx-7.2", "q35": "pc-q35-7.2"}
    binary = qemu(tmp_path, HELP)
    assert resolve_machine(binary, "pc") == "pc-i440fx-7.2"
    assert resolve_machine(binary, "pc-i440fx-7.1") == "pc-i440fx-7.1"
    assert resolve_machine("/nowhere/qemu", "pc") == "pc"


def test_a_vm_boots_as_the_machine_it_was_made_with_after_an_upgrade(tmp_path: Path) -> None:
    settings, order = QemuSettings(tmp_path, binary=qemu(tmp_path, HELP)), vm()
    first = asyncio.run(boot_shape(settings, order, None))
    assert first == replace(shape_of(order), machine="pc-i440fx-7.2", devices=DEVICES)
    made = Manifest(order=order, shape=replace(first, machine="pc-i440fx-5.2", devices=0))
    grown = replace(order, memory_bytes=2 * order.memory_bytes)
    again = asyncio.run(boot_shape(settings, grown, made))
    assert again == replace(shape_of(grown), machine="pc-i440fx-5.2", devices=DEVICES)


def test_only_a_vm_with_an_image_and_without_user_data_needs_the_set_with_a_bare_seed(
    tmp_path: Path,
) -> None:
    settings, image = QemuSettings(tmp_path), ImageInfo(digest="sha256:" + "0" * 64)
    sets = [
        (BootInfo(kernel=image), DEVICES),
        (BootInfo(image=image, user_data="#cloud-config"), DEVICES),
        (BootInfo(image=image), BARE_SEED),
    ]
    for boot, devices in sets:
        shape = asyncio.run(boot_shape(settings, vm(boot=boot), None))
        assert shape.devices == devices, boot
