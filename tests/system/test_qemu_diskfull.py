"""A host whose file system is really full: its guests wait in peace, new VMs go elsewhere.

The data folder of one agent lies on a small file system in memory, which the test fills to its last
byte and empties again. That takes root.
"""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.agent.machine.diskroom import DISK_FULL
from tests.guest import disk_numbers, is_unbroken, without
from tests.system.conftest import Real, two_hosts
from tests.system.movefaults import events
from tests.system.processes import eventually, small
from tests.system.qemuhosts import QemuSite, boot_by_digests

pytestmark = pytest.mark.slow

#: Room for the guest's kernel, and for a disk of which little is written.
SIZE = "160m"
#: How long the full disk is watched. It took 200 events in that time before there was a back-off.
WATCHED_S = 10.0


@contextmanager
def small_file_system(folder: Path) -> Iterator[None]:
    """Have a file system of its own at a folder."""
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        without(f"no file system can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Real]:
    """Give a control plane and two hosts, of which one has a small file system."""
    if os.geteuid() != 0:
        without("only root can mount a file system")
    made = QemuSite(tmp_path)
    with small_file_system(made.hosts_folder / "one"), two_hosts(made) as running:
        yield running


def fill(path: Path) -> None:
    """Write a file until nothing more can be written."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def test_guests_on_a_full_disk_wait_in_peace_and_go_on_when_there_is_room(real: Real) -> None:
    site, client = real
    boot = boot_by_digests("roost.disk=20000")
    vm = site.boot(client, "writer", "one", boot=boot, disk="64MiB")
    eventually("it writes", lambda: _written(real, vm.id)[5:])
    filler = site.hosts_folder / "one" / "filler"
    fill(filler)

    def is_told() -> bool:
        found = client.get_vm(vm.id)
        return found.problem is not None and found.problem.code == "disk_error"

    eventually("it stands still, and that is told", is_told)
    eventually("the host says that it is full", lambda: _is_full(real, "one"))
    before = len(events(real, vm))
    written = _written(real, vm.id)
    threading.Event().wait(WATCHED_S)
    assert len(events(real, vm)) - before <= 8
    assert len(_written(real, vm.id)) <= len(written) + 64  # what lay in its memory may be told
    other = client.create_vm(small("other", cpu=1, memory="96MiB", disk="0GiB"))
    assert other.host == "two"
    site.running(client, other)
    filler.unlink()
    eventually("the host has room", lambda: not _is_full(real, "one"))
    eventually("it writes on", lambda: len(_written(real, vm.id)) > len(written) + 70)
    assert is_unbroken(_written(real, vm.id))
    site.settle(client, vm)


def _written(real: Real, vm_id: str) -> list[int]:
    copies = real.site.watch.copies(vm_id)
    return disk_numbers(copies[-1].text()) if copies else []


def _is_full(real: Real, name: str) -> bool:
    taints = real.client.get_host(name).taints
    return any(taint["key"] == DISK_FULL.key for taint in taints)
