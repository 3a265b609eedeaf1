"""Disks and seeds with the real qemu-img and a real guest, and images that want other files."""

import asyncio
import json
import os
import struct
import subprocess
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from roost.agent.drivers.qemu.disks import (
    check_disk,
    convert_disk,
    disk_info,
    grow_disk,
    image_format,
    make_disk,
)
from roost.agent.drivers.qemu.seed import hostname, seed_files, write_seed
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import BootInfo, DesiredVM, NicInfo
from tests import guest

MIB = 2**20


@pytest.fixture(autouse=True)
def _qemu_img() -> None:
    guest.need("qemu-img")


def qemu_img(*words: object) -> str:
    argv = ["qemu-img", *map(str, words)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def facts(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(qemu_img("info", "--output=json", path))
    return told


def raw_image(path: Path, size: int = MIB) -> Path:
    path.write_bytes(b"image " * (size // 6) + bytes(size % 6))
    return path


def failure(call: Coroutine[Any, Any, Any]) -> DriverError:
    with pytest.raises(DriverError) as caught:
        asyncio.run(call)
    return caught.value


# Making disks


def test_an_empty_disk_has_the_size_that_was_asked_for(tmp_path: Path) -> None:
    disk = tmp_path / "disk.qcow2"
    asyncio.run(make_disk(disk, 64 * MIB))
    assert facts(disk)["virtual-size"] == 64 * MIB
    assert disk.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["disk.qcow2"]


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_a_disk_begins_as_its_image_and_leaves_the_image_alone(tmp_path: Path, kind: str) -> None:
    raw, image, disk = raw_image(tmp_path / "raw"), tmp_path / "image", tmp_path / "disk"
    qemu_img("convert", "-f", "raw", "-O", kind, raw, image)
    image.chmod(0o444)
    asyncio.run(make_disk(disk, 4 * MIB, image))
    assert facts(disk)["backing-filename"] == str(image)
    assert facts(disk)["backing-filename-format"] == kind
    asyncio.run(convert_disk(disk, tmp_path / "whole", "raw"))
    assert (tmp_path / "whole").read_bytes() == raw.read_bytes() + bytes(3 * MIB)


def test_a_disk_without_a_size_is_as_large_as_its_image(tmp_path: Path) -> None:
    asyncio.run(make_disk(tmp_path / "disk", 0, raw_image(tmp_path / "image", 3 * MIB)))
    assert facts(tmp_path / "disk")["virtual-size"] == 3 * MIB


def test_a_disk_smaller_than_its_image_is_refused_with_both_sizes(tmp_path: Path) -> None:
    image = raw_image(tmp_path / "image", 3 * MIB)
    error = failure(make_disk(tmp_path / "disk", MIB, image))
    assert (error.failure, error.code) == ("permanent", "disk_too_small")
    assert str(MIB) in error.message
    assert str(3 * MIB) in error.message


def test_a_disk_with_neither_size_nor_image_is_refused(tmp_path: Path) -> None:
    assert failure(make_disk(tmp_path / "disk", 0)).code == "disk_too_small"


def test_a_disk_that_is_there_is_never_made_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"a guest's data")
    asyncio.run(make_disk(disk, MIB))
    assert disk.read_bytes() == b"a guest's data"


def test_names_that_look_like_protocols_are_only_names(tmp_path: Path) -> None:
    folder = tmp_path / "nbd:unix:x,y=z"
    folder.mkdir()
    image = raw_image(folder / "json:{}", MIB)
    asyncio.run(make_disk(folder / "fat:disk", 2 * MIB, image))
    assert asyncio.run(disk_info(folder / "fat:disk")).virtual_bytes == 2 * MIB


def test_growing_never_makes_a_disk_smaller(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    asyncio.run(make_disk(disk, 4 * MIB))
    asyncio.run(grow_disk(disk, 2 * MIB))
    assert asyncio.run(disk_info(disk)).virtual_bytes == 4 * MIB
    asyncio.run(grow_disk(disk, 8 * MIB))
    assert asyncio.run(disk_info(disk)).virtual_bytes == 8 * MIB


def test_damage_within_a_disk_is_counted(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    qemu_img("convert", "-f", "raw", "-O", "qcow2", raw_image(tmp_path / "raw"), disk)
    assert asyncio.run(check_disk(disk)).errors == 0
    with disk.open("r+b") as file:
        file.seek(40)
        (table,) = struct.unpack(">Q", file.read(8))
        file.seek(table)
        file.write(struct.pack(">Q", (1 << 63) | (1 << 40)))
    assert asyncio.run(check_disk(disk)).errors > 0


# Failures in qemu-img's own words


def test_a_disk_in_a_folder_that_is_not_there_fails_in_qemu_imgs_words(tmp_path: Path) -> None:
    error = failure(make_disk(tmp_path / "no" / "disk", MIB))
    assert (error.failure, error.code) == ("transient", "disk_failed")
    assert "No such file or directory" in error.message


def test_a_full_disk_is_named_as_such_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted: run as root")
    try:
        error = failure(make_disk(folder / "disk", 64 * MIB))
        left = list(folder.iterdir())
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert (error.failure, error.code) == ("transient", "disk_full")
    assert left == []


def test_without_qemu_img_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = failure(make_disk(tmp_path / "disk", MIB))
    assert (error.failure, error.code) == ("permanent", "no_qemu_img")
    assert "qemu-utils" in error.message


def test_a_call_that_is_cancelled_leaves_no_process_and_no_half_of_a_disk(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    slow = programs / "qemu-img"
    slow.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new\nfor last; do :; done\n"
        f"mv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 60\n"
    )
    slow.chmod(0o755)

    async def run() -> int:
        call = asyncio.create_task(make_disk(tmp_path / "disk", MIB))
        async with asyncio.timeout(10):
            while not (tmp_path / "pid").exists():
                await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return int((tmp_path / "pid").read_text())

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        pid = asyncio.run(run())
    assert not Path(f"/proc/{pid}").exists()
    assert not [path for path in tmp_path.iterdir() if "disk" in path.name]


# Images that are not what they seem


def with_backing(folder: Path) -> Path:
    qemu_img("create", "-f", "qcow2", "-b", raw_image(folder / "secret"), "-F", "raw", folder / "i")
    return folder / "i"


def with_data_file(folder: Path) -> Path:
    options = f"data_file={folder / 'secret'},data_file_raw=on"
    qemu_img("create", "-f", "qcow2", "-o", options, folder / "i", "1M")
    return folder / "i"


def of_kind(kind: str) -> Any:
    def make(folder: Path) -> Path:
        qemu_img("create", "-f", kind, folder / "i", "4M")
        return folder / "i"

    return make


def vmdk_by_description(folder: Path) -> Path:
    """A text that says: my sectors are those of /etc/passwd."""
    head = "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\n"
    (folder / "i").write_text(f'{head}createType="monolithicFlat"\nRW 2 FLAT "/etc/passwd" 0\n')
    return folder / "i"


def cut_off(folder: Path) -> Path:
    (folder / "i").write_bytes(b"QFI\xfb\0\0\0\3")
    return folder / "i"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(with_backing, id="backing file"),
        pytest.param(with_data_file, id="data file"),
        pytest.param(of_kind("vmdk"), id="vmdk"),
        pytest.param(of_kind("vdi"), id="vdi"),
        pytest.param(of_kind("vpc"), id="vhd"),
        pytest.param(of_kind("vhdx"), id="vhdx"),
        pytest.param(of_kind("qed"), id="qed"),
        pytest.param(of_kind("parallels"), id="parallels"),
        pytest.param(vmdk_by_description, id="description"),
        pytest.param(cut_off, id="cut off"),
    ],
)
def test_an_image_that_could_open_other_files_is_refused(tmp_path: Path, make: Any) -> None:
    image = make(tmp_path)
    for call in (image_format(image), make_disk(tmp_path / "disk", 8 * MIB, image)):
        error = failure(call)
        assert (error.failure, error.code) == ("permanent", "image_refused")
    assert not (tmp_path / "disk").exists()


def test_another_format_than_the_one_that_was_said_is_refused(tmp_path: Path) -> None:
    image = raw_image(tmp_path / "image")
    error = failure(make_disk(tmp_path / "disk", 8 * MIB, image, "qcow2"))
    assert error.code == "image_refused"


# Seeds


def vm(**changes: Any) -> DesiredVM:
    ordered: dict[str, Any] = {
        "id": "vm-1",
        "name": "web-1",
        "project": "default",
        "generation": 1,
        "power": "running",
        "cpu_milli": 1000,
        "memory_bytes": 128 * MIB,
        "disk_bytes": 0,
        "boot": BootInfo(user_data="#cloud-config\npassword: é\n"),
    }
    return DesiredVM(**(ordered | changes))


def test_a_seed_has_the_label_and_the_names_that_cloud_init_looks_for(tmp_path: Path) -> None:
    guest.need("isoinfo", "blkid")
    seed = tmp_path / "seed.iso"
    write_seed(seed, vm(nics=[NicInfo(), NicInfo(mac="52:54:00:AA:00:01")]))
    label = subprocess.check_output(["blkid", "-o", "value", "-s", "LABEL", seed], text=True)
    kind = subprocess.check_output(["blkid", "-o", "value", "-s", "TYPE", seed], text=True)
    assert (label, kind) == ("cidata\n", "iso9660\n")
    for name, data in seed_files(vm(nics=[NicInfo(), NicInfo(mac="52:54:00:AA:00:01")])).items():
        read = subprocess.check_output(["isoinfo", "-J", "-x", f"/{name}", "-i", seed])
        assert read == data
        plain = f"/{name.upper()}.;1"
        assert subprocess.check_output(["isoinfo", "-x", plain, "-i", seed]) == data


def test_the_same_order_gives_the_same_seed_on_every_host(tmp_path: Path) -> None:
    write_seed(tmp_path / "here", vm())
    write_seed(tmp_path / "there", vm(generation=9))
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


def test_cards_are_named_in_the_seed_only_when_there_are_several() -> None:
    assert "network-config" not in seed_files(vm(nics=[NicInfo()]))
    files = seed_files(vm(nics=[NicInfo(), NicInfo(mac="52:54:00:AA:00:01")]))
    cards = json.loads(files["network-config"])["ethernets"]
    assert cards["nic1"]["match"] == {"macaddress": "52:54:00:aa:00:01"}
    assert cards["nic0"]["match"]["macaddress"].startswith("52:54:00:")


@pytest.mark.parametrize(
    ("name", "host"),
    [("web-1", "web-1"), ("web_1", "web-1"), ("a.b", "a.b"), ("x-", "x"), ("___", "vm")],
)
def test_a_guests_host_name_is_its_vms_name_as_far_as_that_goes(name: str, host: str) -> None:
    assert hostname(name) == host


@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 65536])
def test_files_of_any_length_come_back_whole(tmp_path: Path, size: int) -> None:
    guest.need("isoinfo")
    seed = tmp_path / "seed.iso"
    write_seed(seed, vm(boot=BootInfo(user_data="x" * size)))
    read = subprocess.check_output(["isoinfo", "-J", "-x", "/user-data", "-i", seed])
    assert read == b"x" * size
    assert b"web-1" in subprocess.check_output(["isoinfo", "-J", "-x", "/meta-data", "-i", seed])


# In a guest


def run_guest(folder: Path, cmdline: str, *more: str, until: str) -> str:
    """Boot the guest, pull the plug once `until` is on its console, and return the console."""
    kernel, initrd = guest.guest()
    console = folder / "console.log"
    console.write_text("")
    argv = ["qemu-system-x86_64", "-machine", "pc", "-accel", "tcg", "-cpu", "qemu64", "-m", "128"]
    argv += ["-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}"]
    argv += ["-kernel", str(kernel), "-initrd", str(initrd)]
    argv += ["-append", f"{guest.CMDLINE} {cmdline}", *more]
    give_up_at = time.monotonic() + 120
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        try:
            while until not in console.read_text(errors="replace"):
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < give_up_at, console.read_text(errors="replace")[-500:]
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
        finally:
            process.kill()
    return console.read_text(errors="replace")


@pytest.mark.slow
def test_a_guest_reads_its_seed_and_its_disk_keeps_what_it_wrote(tmp_path: Path) -> None:
    image = raw_image(tmp_path / "image", 4 * MIB)
    image.chmod(0o444)
    disk, seed = tmp_path / "disk.qcow2", tmp_path / "seed.iso"
    before = image.read_bytes()
    asyncio.run(make_disk(disk, 16 * MIB, image))
    write_seed(seed, vm())
    drives = (
        "-drive", f"file={disk},if=virtio,format=qcow2",
        "-drive", f"file={seed},if=virtio,format=raw,readonly=on",
    )  # fmt: skip
    first = run_guest(tmp_path, "roost.disk roost.seed", *drives, until="DISK 3")
    assert 'SEED meta-data: instance-id: "vm-1"' in first
    assert "SEED user-data: password: é" in first
    written = guest.disk_numbers(first)
    assert guest.is_unbroken(written)
    assert guest.is_unbroken(guest.ticks(first))
    asyncio.run(grow_disk(disk, 32 * MIB))
    second = run_guest(tmp_path, "roost.disk", *drives, until="\nDISK ")
    last = int(second.split("DISK-LAST ")[1].split()[0])
    assert last >= written[-1]
    assert asyncio.run(check_disk(disk)).errors == 0
    assert image.read_bytes() == before
