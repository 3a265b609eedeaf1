"""Batches: readings of many subjects as they came, until they are filed into chunks.

What agents sent within some seconds is written at once, as one row for each shard of the subjects,
not for each reading. A batch is quick to make and needs not be small: it lives for half an hour.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from roost.model.series import Columns, Kind, Reading
from roost.series.codec import Corrupt

#: Subjects of one shard share their batches. Hosts have shards of their own: all of them are asked
#: for together.
VM_SHARDS, HOST_SHARDS = 256, 64
_LEVEL = 1

_packed = msgspec.msgpack.Encoder()
_unpacked = msgspec.msgpack.Decoder(list[Any])


class Batch(NamedTuple):
    """Some readings of one shard, as bytes."""

    shard: int
    data: bytes


def shard_of(kind: Kind, number: int) -> int:
    """Return the shard of a subject by its number in the store."""
    return number % VM_SHARDS if kind == "vm" else VM_SHARDS + number % HOST_SHARDS


def host_shards() -> range:
    """Return the shards of hosts."""
    return range(VM_SHARDS, VM_SHARDS + HOST_SHARDS)


def pack_batches(readings: Sequence[tuple[int, Reading]]) -> list[Batch]:
    """Return readings, each with its subject's number, as batches."""
    shards: dict[int, list[tuple[int, Reading]]] = defaultdict(list)
    for number, reading in readings:
        shards[shard_of(reading.subject.kind, number)].append((number, reading))
    return [Batch(shard, _pack(shards[shard])) for shard in sorted(shards)]


def _pack(readings: list[tuple[int, Reading]]) -> bytes:
    # Nearly all readings of a shard have the same figures: then they are one table.
    tables: dict[tuple[str, ...], list[tuple[int, int, tuple[float, ...]]]] = defaultdict(list)
    for number, (_, at_ms, figures) in readings:
        tables[tuple(figures)].append((number, at_ms, tuple(figures.values())))
    body = _packed.encode(
        [
            [
                names,
                len(rows),
                zlib.compress(
                    _planes(np.array([(row[0], row[1]) for row in rows], np.int64))
                    + _planes(np.array([row[2] for row in rows], np.float64)),
                    _LEVEL,
                ),
            ]
            for names, rows in tables.items()
        ]
    )
    return zlib.crc32(body).to_bytes(4, "little") + body


def _planes(values: NDArray[Any]) -> bytes:
    """Return numbers with bytes of equal weight beside each other, column by column."""
    return np.ascontiguousarray(values.T).view(np.uint8).reshape(-1, 8).T.tobytes()


def _numbers(data: bytes, kind: type, columns: int, rows: int) -> NDArray[Any]:
    planes = np.frombuffer(data, np.uint8).reshape(8, -1).T
    return np.ascontiguousarray(planes).view(kind).reshape(columns, rows)


def unpack_batch(data: bytes, only: int | None = None) -> dict[int, list[Columns]]:
    """Return the readings of a batch by subject, of all or of one."""
    body = memoryview(data)[4:]
    if len(data) < 5 or zlib.crc32(body) != int.from_bytes(data[:4], "little"):
        raise Corrupt("the checksum of a batch is wrong")
    found: dict[int, list[Columns]] = defaultdict(list)
    try:
        for names, rows, deflated in _unpacked.decode(body):
            inflate = zlib.decompressobj()
            size = 8 * rows * (2 + len(names))
            plain = inflate.decompress(deflated, size + 1)
            if len(plain) != size:
                raise Corrupt("a batch has another length than it says")
            numbers, at_ms = _numbers(plain[: 16 * rows], np.int64, 2, rows)
            if only is not None and not (numbers == only).any():
                continue
            table = _numbers(plain[16 * rows :], np.float64, len(names), rows)
            for number in (only,) if only is not None else np.unique(numbers).tolist():
                where = numbers == number
                figures = {name: table[place][where] for place, name in enumerate(names)}
                found[number].append(Columns(at_ms[where], figures))
    except (msgspec.DecodeError, TypeError, ValueError, zlib.error) as error:
        raise Corrupt(str(error)) from error
    return found


def unpack_all(batches: Iterable[bytes]) -> dict[int, list[Columns]]:
    """Return the readings of several batches by subject, in the order in which they were put."""
    found: dict[int, list[Columns]] = defaultdict(list)
    for data in batches:
        for number, columns in unpack_batch(data).items():
            found[number] += columns
    return found
