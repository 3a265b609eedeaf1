"""Images on disk, by digest: FOLDER/sha256/<hex>, read-only, and who uses them in FOLDER/pins.

A file that bears a digest's name is used only when its bytes have that digest: hashed on its first
use in this process and again whenever size, time or inode have changed. A broken one is put aside.
Pins are on disk too, so that an agent that starts anew never removes the image below a running
VM's disk. All of this blocks; `Images` calls it in threads.
"""

import hashlib
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from roost.base import private
from roost.hostkit.failures import DriverError
from roost.hostkit.files import file_name, put_aside, sync_folder, write_whole

log = logging.getLogger(__name__)

PIECE = 2**20

#: What tells that a file is the one that was hashed.
_Mark = tuple[int, int, int]


class Part:
    """An image that is not whole yet: what came before is kept, so that a pull can go on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, private.FILE), "r+b", buffering=0)
        # Whoever waits for a thread may give up and close while the thread still writes.
        self._lock = threading.Lock()
        self._hash = hashlib.sha256()
        self.size = 0
        while piece := self._file.read(PIECE):
            self._hash.update(piece)
            self.size += len(piece)

    @property
    def digest(self) -> str:
        """Return the digest of what is here, as hexadecimal digits."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> None:
        """Append bytes to the part."""
        with self._lock:
            view = memoryview(data)
            while view:  # a disk that is nearly full takes the first half and says nothing
                view = view[self._file.write(view) :]
            self._hash.update(data)
            self.size += len(data)

    def restart(self) -> None:
        """Empty the part, to pull it from its beginning."""
        with self._lock:
            self._file.seek(0)
            self._file.truncate()
            self._hash, self.size = hashlib.sha256(), 0

    def finish(self) -> None:
        """Sync the part to disk and make it read-only."""
        with self._lock:
            os.fchmod(self._file.fileno(), private.READ_ONLY_FILE)
            os.fsync(self._file.fileno())
            self._file.close()

    def leave(self) -> None:
        """Close the part and keep it for the next pull."""
        with self._lock:
            self._file.close()

    def drop(self) -> None:
        """Close and remove the file."""
        self.leave()
        self.path.unlink(missing_ok=True)


class ImageStore:
    """The files of one host's images. One process owns the folder."""

    def __init__(self, folder: Path, size_limit: int, wall_ms: Callable[[], int]) -> None:
        self.size_limit = size_limit
        self._folder = folder / "sha256"
        self._pins_folder = folder / "pins"
        self._wall_ms = wall_ms
        self._verified: dict[str, _Mark] = {}
        self._pins: dict[str, set[str]] | None = None  # by VM; None: not read yet
        self._lock = threading.RLock()
        #: Digests that are being fetched now.
        self.busy: set[str] = set()

    def find(self, digest: str) -> Path | None:
        """Return an image that is here and whole; one that is not whole is put aside."""
        path = self._folder / digest
        try:
            if self._is_verified(digest, path):
                return path
        except FileNotFoundError:
            return None
        with self._lock:
            self._verified.pop(digest, None)
            aside = put_aside(path)
        log.warning("image sha256:%s is damaged; it was put aside as %s", digest, aside)
        return None

    def begin(self, digest: str) -> Part:
        """Open what has come of an image so far."""
        private.make_folder(self._folder)
        return Part(self._folder / f"{digest}.part")

    def accept(self, digest: str, part: Part) -> Path:
        """Turn a complete and verified part into an image."""
        path = self._folder / digest
        part.finish()
        part.path.replace(path)
        sync_folder(self._folder)
        self._used(digest, path, path.stat())
        return path

    def make_room(self, digest: str, more_bytes: int) -> None:
        """Evict the images unused for longest until so much more fits; never pinned ones.

        An image that a VM is pinned to is always let in: the limit is on what is kept just in case.
        """
        with self._lock:
            over = self._evict(digest, more_bytes)
            if over > 0 and digest not in self._pinned():
                text = (
                    f"the image store may hold {self.size_limit} bytes, and images in use leave "
                    f"{over} too few for sha256:{digest}"
                )
                raise DriverError("transient", "disk_full", text)
        status = os.statvfs(self._folder)
        free = status.f_bavail * status.f_frsize
        if more_bytes > free:
            text = f"sha256:{digest} needs {more_bytes} bytes more, and {free} are free"
            raise DriverError("transient", "disk_full", text)

    def used_bytes(self) -> int:
        """Return how much all files take together, parts and damaged ones included."""
        return sum(status.st_size for _, status in self._files())

    # Pins

    def pin(self, digest: str, vm_id: str) -> None:
        """Keep an image for a VM, whether it is here yet or not."""
        with self._lock:
            mine = self._read_pins().setdefault(vm_id, set())
            if digest not in mine:
                mine.add(digest)
                self._write_pins(vm_id, mine)

    def unpin(self, vm_id: str) -> None:
        """Unpin all images of a VM."""
        with self._lock:
            self._read_pins().pop(vm_id, None)
            path = self._pins_folder / file_name(vm_id)
            if path.exists():
                path.unlink()
                sync_folder(self._pins_folder)
            self._evict()

    def retain(self, vm_ids: Iterable[str]) -> None:
        """Unpin the images of all VMs but these."""
        with self._lock:
            for vm_id in set(self._read_pins()) - set(vm_ids):
                self.unpin(vm_id)

    def _write_pins(self, vm_id: str, digests: set[str]) -> None:
        private.make_folder(self._pins_folder)
        content = msgspec.json.encode({"vm": vm_id, "digests": sorted(digests)})
        write_whole(self._pins_folder / file_name(vm_id), content)

    def _read_pins(self) -> dict[str, set[str]]:
        if self._pins is None:
            self._pins = {}
            for path in sorted(self._pins_folder.glob("*.json")):
                try:
                    pins = msgspec.json.decode(path.read_bytes(), type=_Pins)
                except msgspec.DecodeError:
                    # Whose images these are cannot be told any more: so nobody's may go.
                    log.warning("%s is damaged: no image is removed until it is gone", path)
                    continue
                self._pins[pins.vm] = set(pins.digests)
        return self._pins

    def _pinned(self) -> set[str]:
        return set().union(*self._read_pins().values())

    def _pins_are_known(self) -> bool:
        known = {file_name(vm_id) for vm_id in self._read_pins()}
        return all(path.name in known for path in self._pins_folder.glob("*.json"))

    # Files

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                try:
                    found.append((path, path.lstat()))
                except FileNotFoundError:
                    continue  # accepted or removed just now
        return found

    def _evict(self, keep: str = "", more_bytes: int = 0) -> int:
        """Remove files until so much more fits; returns by how much it still does not."""
        over = self.used_bytes() + more_bytes - self.size_limit
        for path, size in self._removable(keep) if over > 0 else ():
            log.info("image file %s of %d bytes makes room", path.name, size)
            self._verified.pop(path.name, None)
            path.unlink(missing_ok=True)
            over -= size
            if over <= 0:
                break
        return over

    def _removable(self, keep: str) -> list[tuple[Path, int]]:
        """Return what may go, in order: leftovers, then the images unused for longest."""
        live = {keep} | self.busy
        stays = live | self._pinned()
        pins_are_known = self._pins_are_known()
        leftovers, images = [], []
        for path, status in self._files():
            digest, dot, _ = path.name.partition(".")
            is_live_part = path.suffix == ".part" and digest in live
            if dot and not is_live_part:
                leftovers.append((status.st_mtime_ns, path, status.st_size))
            elif not dot and digest not in stays and pins_are_known:
                images.append((status.st_atime_ns, path, status.st_size))
        return [(path, size) for _, path, size in sorted(leftovers) + sorted(images)]

    def _is_verified(self, digest: str, path: Path) -> bool:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return False
        if self._verified.get(digest) != _mark(status):
            if _hash_of(path) != digest:
                return False
            with suppress(PermissionError):  # an operator has put it here, as another user
                path.chmod(private.READ_ONLY_FILE)
        self._used(digest, path, status)
        return True

    def _used(self, digest: str, path: Path, status: os.stat_result) -> None:
        """Mark an image as verified and used just now."""
        now_ns = self._wall_ms() * 1_000_000
        with suppress(PermissionError):
            os.utime(path, ns=(now_ns, status.st_mtime_ns))
        with self._lock:
            self._verified[digest] = _mark(status)


class _Pins(msgspec.Struct):
    vm: str
    digests: list[str]


def _mark(status: os.stat_result) -> _Mark:
    return status.st_size, status.st_mtime_ns, status.st_ino


def _hash_of(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
