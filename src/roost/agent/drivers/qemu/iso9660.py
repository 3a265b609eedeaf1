"""A small read-only disk: ISO 9660 with the names of Joliet, files in its root alone.

Our own because the same files must give the same bytes: a VM that moves finds this disk on its new
host, and libraries for it write today's date into it (ADR-0016). Tried with Linux and isoinfo;
whoever knows no Joliet sees the same names in capitals.

    sector   0  16       17      18   19 20    21 22   23    24    25 ...
             -  primary  Joliet  end  its path tables  roots       the files
"""

import struct
from collections.abc import Mapping
from itertools import accumulate

SECTOR = 2048

_PRIMARY_TABLES, _JOLIET_TABLES, _PRIMARY_ROOT, _JOLIET_ROOT, _FIRST_FILE = 19, 21, 23, 24, 25
_UCS2_LEVEL_3 = b"%/E"
_FOLDER = 2  # among the flags of an entry
#: 1 January 2000: as an entry has it, and as a volume has it.
_ENTRY_DATE = bytes((100, 1, 1, 0, 0, 0, 0))
_VOLUME_DATE = b"2000010100000000\0"
_NO_DATE = b"0000000000000000\0"


def iso_image(label: str, files: Mapping[str, bytes]) -> bytes:
    """Return the image of the disk; names are ASCII, and all entries fit one sector."""
    lengths = [_sectors(data) for data in files.values()]
    starts = list(accumulate(lengths, initial=_FIRST_FILE))
    places = {
        name: (start, len(data)) for (name, data), start in zip(files.items(), starts, strict=False)
    }
    total = starts[-1]
    primary = {f"{name.upper()}.;1".encode(): place for name, place in places.items()}
    joliet = {name.encode("utf-16-be"): place for name, place in places.items()}
    parts = [
        bytes(16 * SECTOR),
        _volume(1, label.encode(), b" ", total, _PRIMARY_TABLES, _PRIMARY_ROOT),
        _volume(2, label.encode("utf-16-be"), b"\0 ", total, _JOLIET_TABLES, _JOLIET_ROOT),
        b"\xffCD001\x01",
        *_path_tables(_PRIMARY_ROOT),
        *_path_tables(_JOLIET_ROOT),
        _root(_PRIMARY_ROOT, primary),
        _root(_JOLIET_ROOT, joliet),
        *files.values(),
    ]
    return b"".join(part + bytes(-len(part) % SECTOR) for part in parts)


def _sectors(data: bytes) -> int:
    return -(-len(data) // SECTOR)


def _both(number: int) -> bytes:
    """Write a number of 32 bits in both byte orders, as nearly all are."""
    return struct.pack("<I", number) + struct.pack(">I", number)


def _both_short(number: int) -> bytes:
    return struct.pack("<H", number) + struct.pack(">H", number)


def _entry(name: bytes, start: int, length: int, flags: int = 0) -> bytes:
    entry = b"".join(
        (
            b"\0",  # no extended attributes
            _both(start),
            _both(length),
            _ENTRY_DATE,
            bytes((flags, 0, 0)),
            _both_short(1),
            bytes((len(name),)),
            name,
        )
    )
    entry += bytes((len(entry) + 1) % 2)
    return bytes((len(entry) + 1,)) + entry


def _root(start: int, files: Mapping[bytes, tuple[int, int]]) -> bytes:
    """Return the root folder: itself, its parent (itself again) and the files by name."""
    entries = [_entry(name, start, SECTOR, _FOLDER) for name in (b"\0", b"\1")]
    entries += [_entry(name, *files[name]) for name in sorted(files)]
    root = b"".join(entries)
    if len(root) > SECTOR:
        raise ValueError(f"{len(files)} files do not fit the root of a small disk")
    return root


def _path_tables(root: int) -> tuple[bytes, bytes]:
    """Return the list of folders, in either byte order: there is but the root."""
    return struct.pack("<BBIHBB", 1, 0, root, 1, 0, 0), struct.pack(">BBIHBB", 1, 0, root, 1, 0, 0)


def _volume(kind: int, label: bytes, blank: bytes, total: int, tables: int, root: int) -> bytes:
    """Return a volume descriptor; `blank` fills its texts."""

    def text(value: bytes, room: int) -> bytes:
        return (value + blank * room)[: room - room % len(blank)].ljust(room, b"\0")

    escapes = _UCS2_LEVEL_3 if kind == 2 else b""
    return b"".join(
        (
            bytes((kind,)) + b"CD001\x01\0",
            text(b"", 32),  # system
            text(label, 32),
            bytes(8),
            _both(total),
            escapes.ljust(32, b"\0"),
            _both_short(1) + _both_short(1) + _both_short(SECTOR),
            _both(10),  # bytes in a path table
            struct.pack("<II", tables, 0) + struct.pack(">II", tables + 1, 0),
            _entry(b"\0", root, SECTOR, _FOLDER),
            *(text(b"", 128) for _ in range(4)),  # volume set, publisher, preparer, application
            *(text(b"", 37) for _ in range(3)),  # names of files with more about it: none
            _VOLUME_DATE * 2 + _NO_DATE * 2,
            b"\x01",
        )
    )
