"""The serial log of a VM: read in pieces, and kept from filling the host's disk.

QEMU appends to it for as long as the VM lives. What is older than the newest `KEPT_BYTES` is cut
out of the file as a hole: offsets stay true and the space is free. A VM that came by a move has the
end of its earlier host's log in a file beside it (`keep_earlier`), and offsets go on from there:
whoever reads on from an offset misses nothing and sees nothing twice.
"""

import codecs
import ctypes
import errno
import logging
import os
from pathlib import Path

from roost.agent.drivers.base import ConsolePart
from roost.agent.drivers.qemu.command import CONSOLE
from roost.hostkit.failures import DriverError
from roost.hostkit.files import write_whole

log = logging.getLogger(__name__)

KEPT_BYTES = 8 << 20
#: The file with the end of the log of the host before, and the most that goes along in a move.
EARLIER, EARLIER_BYTES = "console.before", 64 << 10
#: The most that one answer holds.
MOST_BYTES = 1 << 20

_BLOCK_BYTES = 1 << 20  # no file system has larger ones
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def read_console(folder: Path, start: int | None, limit: int) -> ConsolePart:
    """Return the last `limit` bytes, or what follows `start`."""
    limit = max(0, min(limit, MOST_BYTES))
    base, earlier = _earlier(folder)
    if base:
        return _read_on(folder, base, earlier, start, limit)
    return _read_log(folder, start, limit)


def end_of_console(folder: Path) -> tuple[int, bytes]:
    """Return the last bytes of a log, those that go along in a move, and the offset they end at.

    A log that cannot be read goes along as an empty one: no move fails because of its log.
    """
    try:
        part = read_console(folder, None, EARLIER_BYTES)
    except (OSError, DriverError) as error:
        log.warning("the console log in %s stays behind: it cannot be read: %s", folder, error)
        return 0, b""
    return part.end, part.text.encode()[-EARLIER_BYTES:]


def keep_earlier(folder: Path, end: int, earlier: bytes) -> None:
    """Write down how a VM's log ended on its earlier host, before it executes here."""
    try:
        here = (folder / CONSOLE).stat().st_size
    except OSError:
        here = 0
    base = max(0, end - here)  # so that the log goes on at the very offset that it had
    write_whole(folder / EARLIER, b"%d\n" % base + earlier[-EARLIER_BYTES:], durable=False)


def forget_earlier(folder: Path) -> None:
    """Remove the end of an earlier host's log: another copy is to come."""
    (folder / EARLIER).unlink(missing_ok=True)


def _earlier(folder: Path) -> tuple[int, bytes]:
    try:
        head, _, text = (folder / EARLIER).read_bytes().partition(b"\n")
        return int(head), text
    except (OSError, ValueError):
        return 0, b""


def _read_on(folder: Path, base: int, earlier: bytes, start: int | None, limit: int) -> ConsolePart:
    """Read a log whose first part is that of an earlier host, and whose own part is at `base`."""
    own = _read_log(folder, None, 0).end
    begin = max(0, base + own - limit) if start is None else max(0, start)
    if begin >= base:
        part = _read_log(folder, begin - base, limit)
        return ConsolePart(part.text, base + part.start, base + part.end, base)
    begin = max(begin, base - len(earlier))
    data = earlier[len(earlier) - (base - begin) :][:limit]
    skipped = _rest_of_character(data)
    more = _read_log(folder, 0, limit - len(data)) if limit > len(data) else None
    text = data[skipped:].decode(errors="replace") + (more.text if more is not None else "")
    end = base + more.end if more is not None else begin + len(data)
    return ConsolePart(text, begin + skipped, end, base)


def _read_log(folder: Path, start: int | None, limit: int) -> ConsolePart:
    """Return a piece of the log that is written here."""
    try:
        descriptor = os.open(folder / CONSOLE, os.O_RDONLY)
    except FileNotFoundError:
        return ConsolePart("", 0, 0)
    except OSError as error:
        raise DriverError("transient", "console_unreadable", f"{error}") from error
    try:
        size = os.fstat(descriptor).st_size
        begin = max(0, size - limit) if start is None else min(max(0, start), size)
        begin = _after_hole(descriptor, begin, size)
        data = os.pread(descriptor, limit, begin)
    finally:
        os.close(descriptor)
    skipped = _rest_of_character(data) if start is None and begin else 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data[skipped:])
    begun = len(decoder.getstate()[0])  # of a character that is not all there: left for next time
    return ConsolePart(text, begin + skipped, begin + len(data) - begun)


def trim_console(folder: Path) -> None:
    """Free the space of what is too old; a file system that cannot do that keeps it."""
    try:
        descriptor = os.open(folder / CONSOLE, os.O_RDWR)
    except OSError:
        return
    try:
        # Whole blocks only: what is cut out of one would read as zeros.
        old = (os.fstat(descriptor).st_size - KEPT_BYTES) // _BLOCK_BYTES * _BLOCK_BYTES
        if old >= KEPT_BYTES:
            _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, 0, old)
    finally:
        os.close(descriptor)


def _after_hole(descriptor: int, begin: int, size: int) -> int:
    try:
        return os.lseek(descriptor, begin, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else begin


def _rest_of_character(data: bytes) -> int:
    """Return how many bytes at the beginning belong to a character that began before."""
    return next((n for n, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
