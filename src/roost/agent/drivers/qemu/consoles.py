"""The serial log of a VM: read in pieces, and kept from filling the host's disk.

QEMU appends to it for as long as the VM lives. What is older than the newest `KEPT_BYTES` is cut
out of the file as a hole: offsets stay true and the space is free.
"""

import codecs
import ctypes
import errno
import os
from pathlib import Path

from roost.agent.drivers.base import ConsolePart
from roost.agent.drivers.qemu.command import CONSOLE
from roost.hostkit.failures import DriverError

KEPT_BYTES = 8 << 20
#: The most that one answer holds.
MOST_BYTES = 1 << 20

_BLOCK_BYTES = 1 << 20  # no file system has larger ones
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def read_console(folder: Path, start: int | None, limit: int) -> ConsolePart:
    """Return the last `limit` bytes, or what follows `start`."""
    limit = max(0, min(limit, MOST_BYTES))
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
