"""A VM's disk: a qcow2 file over its image, made, grown, checked and copied with qemu-img.

An image comes from outside and may lie. Its format is read here, from its own first bytes, and only
raw and qcow2 are taken: other formats, and a qcow2 that names a backing or a data file, could make
QEMU open any file of the host. A disk is made beside its place and renamed, and one that is there
is never made again.
"""

import asyncio
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.base import private
from roost.hostkit.failures import DriverError
from roost.hostkit.files import sync_folder

QEMU_IMG = "qemu-img"

ImageFormat = Literal["raw", "qcow2"]

_QCOW2 = b"QFI\xfb"
#: What other formats begin with, and where. A file like that is certainly not meant as raw.
_FOREIGN = (
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhd", 0, b"conectix"),
    ("vhdx", 0, b"vhdxfile"),
    ("qed", 0, b"QED\0"),
    ("vdi", 64, b"\x7f\x10\xda\xbe"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
    ("luks", 0, b"LUKS\xba\xbe"),
)
_HEAD_BYTES = 512
_EXTERNAL_DATA = 1 << 2  # among the incompatible features of a qcow2

_NO_SPACE = ("No space left on device", "Disk quota exceeded")
_LOCKED = ("Failed to get", "lock")


@dataclass(frozen=True, slots=True)
class DiskInfo:
    """What qemu-img says of a disk or an image."""

    format: ImageFormat
    virtual_bytes: int  # as the guest sees it
    used_bytes: int  # of the host's disk


@dataclass(frozen=True, slots=True)
class DiskCheck:
    """What is wrong inside a qcow2 file; leaks only waste room."""

    errors: int
    leaks: int


async def image_format(image: Path) -> ImageFormat:
    """Return an image's format; raises `image_refused` for one that may not be used."""
    return await asyncio.to_thread(_format, image)


async def image_info(image: Path) -> DiskInfo:
    """Return format and size of an image; raises `image_refused` for one that may not be used."""
    return await _info(image, await image_format(image))


async def disk_info(disk: Path) -> DiskInfo:
    """Return the size of a disk, whether a VM has it open or not."""
    return await _info(disk, "qcow2")


async def make_disk(
    path: Path,
    size_bytes: int,
    backing: Path | None = None,
    backing_format: ImageFormat | None = None,
) -> None:
    """Make an empty disk, or one that begins as the image `backing` and leaves that as it is.

    Without a size it is as large as the image. A disk that is there already is left alone.
    """
    if await asyncio.to_thread(path.exists):
        return
    words: list[str | Path] = ["create", "-q", "-f", "qcow2"]
    if backing is not None:
        image = await image_info(backing)
        if backing_format not in (None, image.format):
            text = f"the image {backing.name} is {image.format}, not {backing_format}"
            raise DriverError("permanent", "image_refused", text)
        size_bytes = size_bytes or image.virtual_bytes
        if size_bytes < image.virtual_bytes:
            text = (
                f"a disk of {size_bytes} bytes is too small for its image, "
                f"which needs {image.virtual_bytes}"
            )
            raise DriverError("permanent", "disk_too_small", text)
        words += ["-b", backing.absolute(), "-F", image.format]
    if size_bytes <= 0:
        raise DriverError("permanent", "disk_too_small", "a disk without an image needs a size")
    with _beside(path) as beside:
        await _run(*words, beside, str(size_bytes))
        await asyncio.to_thread(_put, beside, path)


async def grow_disk(path: Path, size_bytes: int) -> None:
    """Make a disk that no VM has open as large as that; never makes one smaller."""
    if (await disk_info(path)).virtual_bytes < size_bytes:
        await _run("resize", "-q", "-f", "qcow2", path, str(size_bytes))


async def check_disk(path: Path) -> DiskCheck:
    """Look for damage in a disk that no VM has open."""
    # 2: errors, 3: leaks. Both are answers.
    told = await _asked("check", "-f", "qcow2", path, fine=(0, 2, 3))
    return DiskCheck(told.get("corruptions", 0) + told.get("check-errors", 0), told.get("leaks", 0))


async def convert_disk(source: Path, target: Path, target_format: ImageFormat = "qcow2") -> None:
    """Copy a disk, what its image holds included, into one file that needs no image."""
    with _beside(target) as beside:
        await _run("convert", "-q", "-f", "qcow2", "-O", target_format, source.absolute(), beside)
        await asyncio.to_thread(_put, beside, target)


async def _info(path: Path, kind: ImageFormat) -> DiskInfo:
    told = await _asked("info", "-U", "-f", kind, path)
    return DiskInfo(kind, told["virtual-size"], told.get("actual-size", 0))


def _format(image: Path) -> ImageFormat:
    try:
        with image.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise DriverError("transient", "disk_failed", f"cannot read {image}: {error}") from error
    for name, at, magic in _FOREIGN:
        if head[at:].startswith(magic):
            text = (
                f"the image {image.name} is {name}, and only raw and qcow2 are taken. "
                f"Maybe: qemu-img convert -O qcow2"
            )
            raise DriverError("permanent", "image_refused", text)
    if not head.startswith(_QCOW2):
        return "raw"
    if len(head) < 80:
        text = f"the image {image.name} ends within its qcow2 header"
        raise DriverError("permanent", "image_refused", text)
    version, backing = struct.unpack_from(">IQ", head, 4)
    features = struct.unpack_from(">Q", head, 72)[0] if version >= 3 else 0
    if backing:
        text = f"the image {image.name} needs another file below it"
        raise DriverError("permanent", "image_refused", f"{text}. Maybe: qemu-img convert")
    if features & _EXTERNAL_DATA:
        text = f"the image {image.name} keeps its data in another file"
        raise DriverError("permanent", "image_refused", f"{text}. Maybe: qemu-img convert")
    return "qcow2"


@contextmanager
def _beside(path: Path) -> Generator[Path, None, None]:
    """Yield a temporary name for a file that is not whole yet; leftovers are removed."""
    beside = path.absolute().with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _put(beside: Path, path: Path) -> None:
    beside.chmod(private.FILE)  # a guest's data is nobody else's business
    descriptor = os.open(beside, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.replace(path)
    sync_folder(path.parent)


async def _asked(command: str, *words: str | Path, fine: tuple[int, ...] = (0,)) -> dict[str, Any]:
    text = await _run(command, "--output=json", *words, fine=fine)
    answer: dict[str, Any] = msgspec.json.decode(text)
    return answer


async def _run(*words: str | Path, fine: tuple[int, ...] = (0,)) -> bytes:
    """Run qemu-img and return its output; its own words are in the error."""
    # A relative name with a colon would be taken for a protocol.
    argv = [str(word.absolute() if isinstance(word, Path) else word) for word in words]
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            QEMU_IMG,
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=private.plain_environment() | {"LC_ALL": "C"},
        )
    except FileNotFoundError as error:
        text = "qemu-img is not installed on this host. Maybe: apt-get install qemu-utils"
        raise DriverError("permanent", "no_qemu_img", text) from error
    try:
        output, complaint = await process.communicate()
    except asyncio.CancelledError:
        if process.returncode is None:
            process.kill()
        await process.wait()
        raise
    if process.returncode in fine:
        return output
    raise _failure(argv[0], complaint.decode(errors="replace").strip())


def _failure(command: str, complaint: str) -> DriverError:
    text = f"qemu-img {command}: {complaint.removeprefix('qemu-img: ')}"
    if any(words in complaint for words in _NO_SPACE):
        return DriverError("transient", "disk_full", text)
    if all(words in complaint for words in _LOCKED):
        return DriverError("transient", "disk_in_use", text)
    return DriverError("transient", "disk_failed", text)
