"""Images of containers, made without a registry or a package index: from what this machine has.

The base is the Python that runs the tests, with the shared libraries that it loads, a shell and
`install`; packages are the installed distributions, put back into wheels. So the shipped recipe
runs as it is, and only where it takes things from differs.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

import pytest

#: A machine without CAP_SYS_RESOURCE cannot raise the limits that podman asks for by default.
LIMITS = ("--ulimit", "nofile=1024:4096", "--ulimit", "nproc=1024:4096")
_LIBRARY = re.compile(r"(/\S+) \(0x")
#: What wheels are linked with: the parts of the C library, and the C++ library.
_WANTED = re.compile(
    r"lib(?:stdc\+\+|gcc_s|rt|m|dl|util|pthread|resolv)\.so\.\d+ .*x86-64.* => (\S+)"
)
_UNUSED = ("site-packages", "test", "idlelib", "tkinter", "__pycache__", "config-*", "turtledemo")


class Podman:
    """podman with images and containers of its own, below a folder that goes with them."""

    def __init__(self) -> None:
        programs = os.environ["PATH"] + ":/usr/sbin:/sbin"
        podman, runc = shutil.which("podman"), shutil.which("runc", path=programs)
        if podman is None or runc is None or os.geteuid() != 0:
            reason = "podman and runc are not both here, or not as root: make parts"
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
        # podman takes no long path here; in memory layers are copied in half the time.
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/var/tmp"
        self.folder = folder = Path(tempfile.mkdtemp(prefix="roost-", dir=parent))
        self.words = [
            str(podman), "--root", str(folder / "graph"), "--runroot", str(folder / "run"),
            "--tmpdir", str(folder / "tmp"), "--storage-driver", "overlay",
            "--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", str(runc),
        ]  # fmt: skip

    def __call__(
        self, *words: str | Path, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command; what it said is in the error when it fails."""
        done = subprocess.run(
            [*self.words, *map(str, words)], capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def reset(self) -> None:
        """End every container, and let go of what is mounted."""
        self("rm", "--all", "--force", "--time", "1", check=False)
        self("rmi", "--all", "--force", check=False)
        self("system", "reset", "--force", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def base_files(folder: Path) -> None:
    """Lay out a root file system with this Python below /usr/local, a shell and `install`."""
    prefix = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    local = folder / "usr/local"
    for name in ("bin", "lib"):
        (local / name).mkdir(parents=True)
    shutil.copy2(prefix / "bin" / version, local / "bin" / version)
    for name in ("python", "python3"):
        (local / "bin" / name).symlink_to(version)
    shutil.copytree(
        sysconfig.get_path("stdlib"), local / "lib" / version,
        ignore=shutil.ignore_patterns(*_UNUSED), symlinks=True,
    )  # fmt: skip
    for name in ("tmp", "etc", "root", "usr/bin", "proc", "sys", "dev"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib64"):
        (folder / name).symlink_to("usr/bin" if name != "lib64" else "usr/lib64")
    programs = {"sh": "/bin/sh", "install": shutil.which("install")}
    for name, program in programs.items():
        shutil.copy2(Path(str(program)).resolve(), folder / "usr/bin" / name)
    linked = [local / "bin" / version, *(folder / "usr/bin").iterdir()]
    linked += (local / "lib" / version / "lib-dynload").glob("*.so")
    _copy_libraries(linked, folder)


def _copy_libraries(programs: Iterable[Path], folder: Path) -> None:
    """Copy what programs are linked with, and what wheels are."""
    found = (
        {"/lib64/ld-linux-x86-64.so.2"} if Path("/lib64/ld-linux-x86-64.so.2").exists() else set()
    )
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found.update(_LIBRARY.findall(listed))
    cached = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found.update(_WANTED.findall(cached))
    (folder / "usr/lib64").mkdir(parents=True, exist_ok=True)
    (folder / "lib").symlink_to("usr/lib64")
    # Where the dynamic linker looks on Debian: in the folder that is named after the machine.
    multiarch = folder / "usr/lib64" / (sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")
    multiarch.mkdir()
    for path in found:
        to = folder / "usr/lib64" if "ld-linux" in path else multiarch
        shutil.copy2(Path(path).resolve(), to / Path(path).name)


def put_into_wheel(name: str, folder: Path, sources: Path | None = None) -> Path:
    """Make a wheel of an installed distribution; with `sources`, of the package that lies there."""
    made = distribution(name)
    metadata = made.metadata
    stem = f"{re.sub(r'[-_.]+', '_', metadata['Name'])}-{made.version}"
    tags = re.findall(r"^Tag: (\S+)$", made.read_text("WHEEL") or "", re.MULTILINE)
    # Several tags are written as one: those that stand at each place, joined by dots.
    tag = "-".join(
        ".".join(dict.fromkeys(part)) for part in zip(*(t.split("-") for t in tags), strict=True)
    )
    wheel = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for file in made.files or ():
            path = Path(str(file.locate()))
            inside = ".." not in file.parts and file.suffix != ".pyc" and path.is_file()
            if inside and (sources is None or ".dist-info" in file.parts[0]):
                archive.write(path, str(file))
        if sources is not None:
            for path in sources.rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    archive.write(path, str(path.relative_to(sources.parent)))
    return wheel
