"""The test guest: a small Linux that counts on its serial console, for tests of real hypervisors.

Built on first use by tools/build-guest, once for all processes of a run. What it can be told on the
kernel's command line stands at the top of tools/guest/init. `debian` is a whole distribution, by
tools/build-debian, for what only a real guest shows; `worker_image` is that one with roost in it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from roost.wire.agentlink import BootInfo, ImageInfo

INSTALL = "install QEMU: make parts (as root, on Debian)"
TOOLS = Path(__file__).resolve().parent.parent / "tools"

#: Quiet, on the first serial port, and always laid out the same in memory.
CMDLINE = "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init nokaslr"

#: Longer than a download over a slow line; the second use takes a tenth of a second.
_BUILD_S = 900

_TICK = re.compile(r"^TICK (\d+) [\d.]+\r?$", re.MULTILINE)
_DISK = re.compile(r"^DISK (\d+)\r?$", re.MULTILINE)


class Guest(NamedTuple):
    """What QEMU boots."""

    kernel: Path
    initrd: Path


class Debian(NamedTuple):
    """What QEMU boots, with a disk."""

    kernel: Path
    initrd: Path
    disk: Path


def need(*programs: str) -> None:
    """Skip the test when a program is missing; in CI, where nothing may be, fail."""
    if missing := [name for name in programs if shutil.which(name) is None]:
        without(f"not installed: {', '.join(missing)}; {INSTALL}")


def guest() -> Guest:
    """Return the guest, built if need be; skips the test where it cannot be."""
    need("qemu-system-x86_64", "qemu-img", "apt-get", "dpkg")
    folder = _folder("build-guest")
    return Guest(folder / "vmlinuz", folder / "initrd.gz")


def debian() -> Debian:
    """Return the Debian, built if need be; skips the test where it cannot be."""
    need("qemu-system-x86_64", "qemu-img", "mmdebstrap")
    folder = _folder("build-debian")
    return Debian(folder / "vmlinuz", folder / "initrd.gz", folder / "disk.raw")


def worker_image() -> Debian:
    """Return the Debian that has roost, built if need be; skips the test where it cannot be."""
    need("qemu-system-x86_64", "qemu-img", "mmdebstrap")
    folder = _folder("build-worker-image")
    return Debian(folder / "vmlinuz", folder / "initrd.gz", folder / "disk.raw")


def boot_info(cmdline: str = "", *, image: Path | None = None, user_data: str = "") -> BootInfo:
    """Return an order to boot the guest; `cmdline` is added to what it always needs."""
    kernel, initrd = guest()
    return BootInfo(
        image=image_info(image) if image else None,
        kernel=image_info(kernel),
        initrd=image_info(initrd),
        cmdline=f"{CMDLINE} {cmdline}".strip(),
        user_data=user_data,
    )


def image_info(path: Path) -> ImageInfo:
    """Return the image that a file is, to be fetched from that file."""
    return ImageInfo(digest=_digest(path, path.stat().st_mtime_ns), url=path.as_uri())


def ticks(text: str) -> list[int]:
    """Return the numbers that the guest has counted; a last line that is cut off is left out."""
    return [int(number) for number in _TICK.findall(_whole_lines(text))]


def disk_numbers(text: str) -> list[int]:
    """Return the numbers that the guest has written durably to its disk."""
    return [int(number) for number in _DISK.findall(_whole_lines(text))]


def is_unbroken(numbers: list[int]) -> bool:
    """Return whether each number is the one before and 1; no numbers at all prove nothing."""
    return bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _whole_lines(text: str) -> str:
    return text[: text.rfind("\n") + 1]


def _folder(tool: str) -> Path:
    folder, problem = _built(tool)
    if folder is None:
        without(f"the guest cannot be built: {problem}; {INSTALL}")
    return folder


@cache
def _built(tool: str) -> tuple[Path | None, str]:
    # The tools hold a lock, so that other workers wait for the one that builds.
    words = [sys.executable, TOOLS / tool]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode:
        return None, " ".join(done.stderr.split())
    return Path(done.stdout.strip()), ""


@cache
def _digest(path: Path, _mtime_ns: int) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def without(reason: str) -> NoReturn:
    """Skip the test for want of something; in CI, where nothing may be missing, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
