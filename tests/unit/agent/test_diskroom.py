"""A host with a full disk says so by a taint, which goes again when there is room."""

from pathlib import Path

from roost.agent.machine.diskroom import DISK_FULL, DiskRoom
from roost.base.units import GIB, MIB


def test_a_full_disk_is_a_taint_until_there_is_clearly_room_again(tmp_path: Path) -> None:
    room = DiskRoom(tmp_path)
    found = [room.judge(free * MIB, 10 * GIB) for free in (300, 210, 200, 210, 400, 420, 210)]
    assert found == [[], [], [DISK_FULL], [DISK_FULL], [DISK_FULL], [], []]


def test_a_large_disk_is_full_below_a_gibibyte(tmp_path: Path) -> None:
    room = DiskRoom(tmp_path)
    assert room.judge(2 * GIB, 1000 * GIB) == []
    assert room.judge(GIB - 1, 1000 * GIB) == [DISK_FULL]


def test_what_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    room = DiskRoom(tmp_path / "none")
    assert room.conditions() == []
    room.judge(0, GIB)
    assert room.conditions() == [DISK_FULL]
    assert DiskRoom(tmp_path).conditions() in ([], [DISK_FULL])
