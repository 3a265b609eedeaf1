"""The stage of `roost demo --qemu`: a control plane and two hosts of real guests in one folder.

Like the stage of the virtual demo, and beside it QEMUs: they outlive their agents by design, so
the demo finds them by the folders they run in and ends them itself.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import roost
from roost.agent.drivers.qemu.manifest import find_running, folder_name
from roost.app.childprocess import kill_all
from roost.app.demo import Stage
from roost.app.options import QemuOptions
from roost.app.qemuchecks import check_qemu
from roost.base.clock import Clock
from roost.base.errors import NotFound, Unavailable

HOSTS = ("qemu-1", "qemu-2")
#: Quiet, counting every 50 ms on the first serial port.
CMDLINE = "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init nokaslr roost.tick_us=50000"

_BUILD_S = 600.0
_LOOK_S = 0.004
_TICK = re.compile(r"^TICK (\d+) [\d.]+\r?$", re.MULTILINE)


class Guest(NamedTuple):
    """What the VMs of the demo boot."""

    kernel: Path
    initrd: Path


async def build_guest() -> Guest:
    """Return the small guest, built by the checkout's own tool the first time."""
    check_qemu(QemuOptions(accel="tcg"))
    places = (Path.cwd(), Path(roost.__file__).resolve().parents[2])
    tools = [place / "tools" / "build-guest" for place in places]
    tool = next((each for each in tools if each.is_file()), None)
    if tool is None:
        raise NotFound(
            "the demo's guest is built by tools/build-guest, which is not here",
            hint="Maybe run it in a checkout of roost.",
        )
    process = await asyncio.create_subprocess_exec(
        str(tool), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_BUILD_S):
            said, wrong = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        told = " ".join(wrong.decode(errors="replace").split()[-40:])
        raise Unavailable(f"the demo's guest cannot be built: {told}")
    folder = Path(said.decode().strip())
    return Guest(folder / "vmlinuz", folder / "initrd.gz")


class Console:
    """What a guest writes on one host. Held open: a move takes its folder away."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Close the console's file."""
        os.close(self._descriptor)

    def written_at(self) -> float:
        """Return when the guest wrote last, by the machine's clock."""
        return os.fstat(self._descriptor).st_mtime

    def text(self) -> str:
        """Return all that the guest has written."""
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size, 0).decode(errors="replace")


async def first_write(path: Path, clock: Clock) -> float:
    """Return when a guest first wrote to a console that is not there yet."""
    while True:
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
        if found is not None and found.st_size:
            return found.st_mtime
        await clock.sleep(_LOOK_S)


class Counted(NamedTuple):
    """The counter on both sides of a move."""

    last: int
    first: int


def read_counter(text: str) -> list[int]:
    """Return what a guest has counted; a line that is cut off is left out."""
    return [int(number) for number in _TICK.findall(text[: text.rfind("\n") + 1])]


def counted_across(source: str, target: str) -> Counted | None:
    """Return the last number before a move and the first after it; None before both are there.

    The line in which the guest stood still may have its halves on two hosts; it counts as the
    target's.
    """
    whole = source.rfind("\n") + 1
    before, after = read_counter(source[:whole]), read_counter(source[whole:] + target)
    return Counted(before[-1], after[0]) if before and after else None


class QemuStage(Stage):
    """A control plane and two hosts of real guests."""

    comes_back = HOSTS
    back_s = 10.0

    def __init__(
        self, folder: Path, clock: Clock, say: Callable[[str], None], guest: Guest
    ) -> None:
        super().__init__(folder, clock, say)
        self._guest = guest

    async def start_host(self, name: str) -> None:
        """Start the agent of a host, or start it again."""
        self._agents[name] = await self._start(
            f"the agent of {name}", "agent", "--name", name, "--driver", "qemu",
            "--accel", "tcg", "--data", str(self.hosts_folder / name),
            "--server", self.context.server, "--cpu", "4", "--memory", "1GiB", "--disk", "4GiB",
            "--default-kernel", str(self._guest.kernel),
            "--default-initrd", str(self._guest.initrd),
            "--default-cmdline", CMDLINE,
        )  # fmt: skip

    def console_path(self, host: str, vm_id: str) -> Path:
        """Return where a host keeps what a VM writes."""
        return self.hosts_folder / host / "vms" / folder_name(vm_id) / "console.log"

    async def qemus(self) -> dict[str, dict[str, int]]:
        """Return the QEMU processes of each VM, by host."""
        return await asyncio.to_thread(self._qemus)

    def _qemus(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for vms in sorted(self.hosts_folder.glob("*/vms")):
            for each in find_running(vms).values():
                found.setdefault(each.vm_id, {})[vms.parent.name] = each.identity.pid
        return found

    async def _end_vms(self) -> None:
        qemus = await self.qemus()
        await kill_all(pid for hosts in qemus.values() for pid in hosts.values())
