"""A worker whose disk is full: the failure is ours, not the job's, and the worker goes on."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.units import MIB
from tests.integration.worker.standin import StandInPlane, assignment, working


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 4 MiB."""
    at = tmp_path / "disk"
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(at)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    yield at
    subprocess.run(["umount", "-l", str(at)], check=True)


def test_a_full_disk_is_the_machines_failure(small_disk: Path) -> None:
    async def case() -> Any:
        plane = StandInPlane()
        plane.assigned["a:1"] = assignment("a:1", "sh", "-c", "head -c 9000000 /dev/zero > big")
        async with working(plane, small_disk / "w"):
            first = await plane.report("a:1")
            # Its folder goes when its report has arrived: what is filled before then empties again.
            # (A walk passes over folders that go while it looks; a glob raises.)
            await plane.until(lambda: not any("big" in at[2] for at in os.walk(small_disk / "w")))
            (small_disk / "rest").write_bytes(b"")
            with (small_disk / "rest").open("wb") as file:
                try:
                    while True:
                        file.write(b"0" * MIB)
                        file.flush()
                except OSError:
                    pass
            plane.assigned["b:1"] = assignment("b:1", "true")
            second = await plane.report("b:1")
            (small_disk / "rest").unlink()
            plane.assigned["c:1"] = assignment("c:1", "true", disk_bytes=0)
            return first, second, await plane.report("c:1")

    first, second, third = asyncio.run(case())
    assert first.reason == "worker_disk_full"
    assert (second.outcome, second.reason) == ("failed", "worker_disk_full")
    assert third.outcome == "completed" or third.reason == "worker_disk_full"
