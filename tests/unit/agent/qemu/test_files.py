"""The files of one VM: manifest and console log."""

from pathlib import Path

import pytest

from roost.agent.drivers.qemu import consoles
from roost.agent.drivers.qemu.consoles import read_console, trim_console
from roost.agent.drivers.qemu.folders import read_folders, remove_folder
from roost.agent.drivers.qemu.manifest import (
    Manifest,
    folder_name,
    read_manifest,
    write_manifest,
)
from roost.agent.drivers.qemu.process import Identity, is_alive
from roost.testing.orders import vm


@pytest.mark.parametrize("vm_id", ["vm-1", "..", "a/b", ".", "ü" * 200, "x.vm"])
def test_a_folder_is_harmless_whatever_the_id_is(vm_id: str) -> None:
    name = folder_name(vm_id)
    assert "/" not in name
    assert name.endswith(".vm")
    assert len(name) > 3
    assert len(name.encode()) < 200


def test_the_manifest_before_is_kept_and_a_broken_one_never_replaces_it(tmp_path: Path) -> None:
    for generation in (1, 2):
        write_manifest(tmp_path, Manifest(order=vm(generation=generation)))
    (tmp_path / "manifest.json").write_bytes(b'{"order":')
    manifest, whole = read_manifest(tmp_path)
    assert not whole
    assert manifest is not None
    assert manifest.order.generation == 1
    write_manifest(tmp_path, Manifest(order=vm(generation=3)))
    (tmp_path / "manifest.json").unlink()
    manifest, whole = read_manifest(tmp_path)
    assert manifest is not None
    assert (manifest.order.generation, whole) == (1, False)


def test_a_new_agent_finds_stopped_vms_and_finishes_removals(tmp_path: Path) -> None:
    for vm_id in ("vm-1", "vm-2"):
        (tmp_path / folder_name(vm_id)).mkdir(parents=True)
        write_manifest(tmp_path / folder_name(vm_id), Manifest(order=vm(vm_id)))
    (tmp_path / folder_name("vm-3")).mkdir()  # a start that came no further
    (tmp_path / "vm-4.removed").mkdir()
    (tmp_path / "vm-4.removed" / "disk.qcow2").touch()
    found = read_folders(tmp_path)
    assert [(each.vm_id, each.process) for each in found] == [("vm-1", None), ("vm-2", None)]
    remove_folder(tmp_path / folder_name("vm-1"), None)
    assert [path.name for path in tmp_path.iterdir()] == ["vm-2.vm"]


def test_a_process_of_another_boot_or_start_is_not_this_one() -> None:
    from roost.agent.fencing.guard import boot_id, started_at

    started = started_at(1)
    assert started is not None
    assert is_alive(Identity(1, started, boot_id()))
    assert not is_alive(Identity(1, started, "another boot"))
    assert not is_alive(Identity(1, started + 1, boot_id()))


def test_a_console_is_read_from_its_end_or_onward(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    assert read_console(tmp_path, None, 10)[:3] == ("", 0, 0)
    log.write_bytes(b"0123456789")
    assert read_console(tmp_path, None, 4)[:3] == ("6789", 6, 10)
    assert read_console(tmp_path, 2, 4)[:3] == ("2345", 2, 6)
    assert read_console(tmp_path, 10, 4)[:3] == ("", 10, 10)
    assert read_console(tmp_path, 99, 4)[:3] == ("", 10, 10)
    assert read_console(tmp_path, -5, 4)[:3] == ("0123", 0, 4)


def test_a_character_that_is_cut_through_is_read_whole_the_next_time(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_bytes("aü€b".encode())
    first = read_console(tmp_path, 0, 2)
    assert first[:3] == ("a", 0, 1)
    assert read_console(tmp_path, first.end, 5)[:3] == ("ü€", 1, 6)
    assert read_console(tmp_path, None, 3).text == "b"
    (tmp_path / "console.log").write_bytes(b"\xff\xfe!")
    assert read_console(tmp_path, None, 9).text == "\ufffd\ufffd!"


def test_an_old_log_gives_its_room_back_and_keeps_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consoles, "KEPT_BYTES", 1 << 20)
    log = tmp_path / "console.log"
    log.write_bytes(b"x" * (5 << 20) + b"end")
    before = log.stat()
    trim_console(tmp_path)
    after = log.stat()
    assert after.st_size == before.st_size
    if after.st_blocks == before.st_blocks:
        pytest.skip("this file system cannot make holes")
    assert read_console(tmp_path, None, 3)[:3] == ("end", after.st_size - 3, after.st_size)
    part = read_console(tmp_path, 0, 4)
    assert part.text == "xxxx"
    assert part.start >= (4 << 20) - 4096
