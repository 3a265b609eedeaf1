"""`roost demo --qemu` as a newcomer runs it: real guests that count, and nothing left running."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guest import guest
from tests.system.processes import eventually
from tests.system.test_demo import Demo, folder, started

pytestmark = pytest.mark.slow

__all__ = ["folder", "started"]  # fixtures: nothing of a demo runs after its test


def qemus_of(folder: Path) -> list[int]:
    """Return the QEMUs that run below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                inside = (entry / "cwd").resolve().is_relative_to(folder)
                if inside and b"qemu-system" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_the_tour_shows_every_part_and_serves_until_it_is_interrupted(
    folder: Path, started: list[Demo]
) -> None:
    guest()
    demo = Demo(folder, "--qemu", "--serve")
    started.append(demo)
    said = demo.wait_for("It serves until Ctrl-C.")
    for part in (
        "--driver qemu",
        "roost vm create web-3 --cpu 1 --memory 96MiB --disk 0GiB --wait",
        "web-1  running  qemu-",
        "roost plan create --goal move --vm web-1 --to qemu-",
        "done, wave 1 of 1, 1 of 1",
        "(+1: none lost, none twice)",
        "is empty: 0 VMs left",
        "later it runs again, and boots.",
        "Without an agent they count on:",
        "The same QEMUs as before run them:",
        "all is well",
        "roost vm console web-1 --follow",
    ):
        assert part in said, said
    assert all(len(line) <= 100 for line in said.splitlines())
    listed = json.loads(demo.roost("vm", "list", "-o", "json").stdout)
    assert [vm["state"] for vm in listed["vms"]] == ["running"] * 3
    assert len(qemus_of(folder)) == 3
    demo.signal(signal.SIGINT)
    assert demo.finish() == 0, demo.log()
    assert qemus_of(folder) == []


def test_an_interrupted_demo_leaves_no_guest(folder: Path, started: list[Demo]) -> None:
    guest()
    demo = Demo(folder, "--qemu", "--once")
    started.append(demo)
    demo.wait_for("vm create web-2")
    demo.signal(signal.SIGTERM)
    assert demo.finish() == 130, demo.log()
    eventually("no QEMU is left", lambda: qemus_of(folder) == [], 1)


def test_without_qemu_it_says_how_to_install_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "roost.cli.main", "demo", "--qemu", "--once"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "COLUMNS": "200"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "QEMU is not installed" in done.stderr
    assert "make parts" in done.stderr
    assert not (tmp_path / ".roost").exists()
