"""What roost keeps is closed to other users of the machine, and so is what it kept before."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from roost.agent.drivers.qemu.command import Files
from roost.agent.drivers.qemu.launch import give_files
from roost.base import private
from roost.parts.sealing import KeyFile, new_key


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def loose() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_folders_and_files_are_private_whatever_the_umask(loose: object, tmp_path: Path) -> None:
    made = private.make_folder(tmp_path / "a" / "b")
    private.make_file(made / "file")
    assert [mode(tmp_path / "a"), mode(made), mode(made / "file")] == [0o700, 0o700, 0o600]


def test_nothing_is_written_through_what_somebody_has_put_there(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (tmp_path / "lock").symlink_to(theirs)
    private.make_file(tmp_path / "lock")
    assert not theirs.exists()
    key = tmp_path / "roost.key"
    (tmp_path / f".roost.key.{os.getpid()}").symlink_to(theirs)  # the name of before
    KeyFile(key).put_first([new_key()])
    assert not theirs.exists()
    beside, file = private.open_beside(key)
    other, again = private.open_beside(key)
    file.close()
    again.close()
    assert beside != other
    assert mode(beside) == mode(key) == 0o600


def test_what_earlier_releases_left_open_is_closed_by_name(loose: object, tmp_path: Path) -> None:
    for name in ("vms/one", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("vms/one/manifest.json", "vms/image", "other/file"):
        (tmp_path / name).touch()
    (tmp_path / "vms/image").chmod(0o444)
    tmp_path.chmod(0o755)
    changed = private.tighten_folder(tmp_path, ("vms", "missing"), ours=("other",))
    assert {path.relative_to(tmp_path).as_posix() for path in changed} == {
        ".", "vms", "vms/one", "vms/one/manifest.json", "vms/image",
    }  # fmt: skip
    assert mode(tmp_path) == mode(tmp_path / "vms/one") == 0o700
    assert mode(tmp_path / "vms/image") == 0o400
    assert (mode(tmp_path / "other"), mode(tmp_path / "other/file")) == (0o755, 0o644)
    assert private.tighten_folder(tmp_path, ("vms",)) == []


def test_a_shared_folder_and_the_end_of_a_link_stay_open(loose: object, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    (tmp_path / "roost.db").symlink_to(elsewhere)
    assert private.tighten_folder(tmp_path, ("roost.db",)) == []
    assert (mode(tmp_path), mode(elsewhere)) == (0o1777, 0o644)
    assert not private.is_ours(tmp_path, ("elsewhere", "roost.db"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_left(loose: object, tmp_path: Path) -> None:
    theirs = tmp_path / "disk"
    theirs.touch()
    os.chown(theirs, 65534, 65534)
    assert private.tighten([theirs]) == []
    assert not private.is_ours(tmp_path, ("disk",))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_that_qemus_group_was_given_stays_passable(loose: object, tmp_path: Path) -> None:
    for name in ("given", "open", "ours"):
        (tmp_path / "vms" / name).mkdir(parents=True)
    give_files(tmp_path / "vms" / "given", Files(), "nobody")
    os.chown(tmp_path / "vms" / "open", -1, 65534)
    (tmp_path / "vms" / "ours").chmod(0o710)
    private.tighten_folder(tmp_path, ("vms",))
    assert {path.name: mode(path) for path in (tmp_path / "vms").iterdir()} == {
        "given": 0o710, "open": 0o700, "ours": 0o700,
    }  # fmt: skip


def test_a_folder_that_has_something_else_in_it_stays_open(loose: object, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name in ("roost.db", "roost.db-wal", ".roost.key.12", "www"):
        (tmp_path / name).touch()
    names = ("roost.db", "roost.key")
    changed = private.tighten_folder(tmp_path, names)
    assert (changed, mode(tmp_path)) == ([tmp_path / "roost.db"], 0o755)
    (tmp_path / "www").unlink()
    assert private.tighten_folder(tmp_path, names) == [tmp_path]
    assert mode(tmp_path) == 0o700


def test_a_home_and_what_lies_at_the_top_are_never_closed(
    loose: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    assert private.is_ours(tmp_path, ())
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private.tighten_folder(tmp_path, ()) == []
    for top in (Path("/"), Path("/srv"), Path("/proc")):
        assert not private.is_ours(top, [each.name for each in top.iterdir()])


def test_a_withdrawn_process_makes_private_files_and_no_core_dump(tmp_path: Path) -> None:
    code = """
import ctypes, pathlib, resource
from roost.base.private import withdraw_process
withdraw_process()
pathlib.Path("file").touch()
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["(0,", "0)", "0"]
    assert mode(tmp_path / "file") == 0o600


def test_what_opens_something_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_JOIN_TOKEN", "marker")
    monkeypatch.setenv("ROOST_CONTEXT", "kept")
    found = private.plain_environment()
    assert "marker" not in found.values()
    assert found["ROOST_CONTEXT"] == "kept"
