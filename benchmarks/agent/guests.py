"""The guest that is booted and moved: a small Linux that counts on its serial console.

Built by tools/build-guest; what it can be told stands at the top of tools/guest/init. A machine
that lacks a part of it says which (`Missing`).
"""

import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.api.serving import REPOSITORY
from roost.wire.bodies import BootBody, ConstraintsBody, CreateVM, DemandBody, ImageBody

_BUILD = REPOSITORY / "tools" / "build-guest"
_BUILD_S = 600.0
_PROGRAMS = ("qemu-system-x86_64", "qemu-img", "apt-get", "dpkg")
_INSTALL = "install QEMU: make parts"
_CMDLINE = "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init nokaslr"
MEMORY_MIB = 128


class Missing(Exception):
    """This machine cannot run guests; says why, and what helps."""


class Guest(NamedTuple):
    """The files that boot."""

    kernel: Path
    initrd: Path

    def vm(self, name: str, *hosts: str, words: str = "") -> CreateVM:
        """Return the request for a VM on one of some hosts; `words` are for the guest."""
        boot = BootBody(
            kernel=_image(self.kernel),
            initrd=_image(self.initrd),
            cmdline=f"{_CMDLINE} {words}".strip(),
        )
        demand = DemandBody(cpu=1, memory=f"{MEMORY_MIB}MiB")
        where = ConstraintsBody(hosts=list(hosts))
        return CreateVM(name=name, demand=demand, boot=boot, constraints=where)

    @property
    def agent_options(self) -> list[str]:
        """Return what an agent must be told to boot it: software emulation, as on any machine."""
        source = f"file://{self.kernel.parent}/"
        return ["--driver", "qemu", "--accel", "tcg", "--image-from", source]


@cache
def guest() -> Guest:
    """Return the guest, built if need be."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise Missing(f"not installed: {', '.join(missing)}; {_INSTALL}")
    done = subprocess.run([_BUILD], capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode:
        raise Missing(f"the guest cannot be built: {' '.join(done.stderr.split())}; {_INSTALL}")
    folder = Path(done.stdout.strip())
    return Guest(folder / "vmlinuz", folder / "initrd.gz")


@cache
def _image(path: Path) -> ImageBody:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ImageBody(digest=f"sha256:{digest}", url=path.as_uri())
