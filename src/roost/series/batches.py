"""Batches: readings of many subjects as they came, until they are filed into chunks.

What agents sent within some seconds is written at once, as one row for each shard of the subjects,
not for each reading. A batch is quick to make and needs not be small: it lives for an hour.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
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


class Table(NamedTuple):
    """Readings of several subjects with the same figures, as they were put."""

    names: tuple[str, ...]
    numbers: NDArray[np.int64]  # of subjects, reading by reading
    at_ms: NDArray[np.int64]
    values: NDArray[np.float64]  # figure by reading


def unpack_batch(data: bytes) -> list[Table]:
    """Return the readings of a batch."""
    body = memoryview(data)[4:]
    if len(data) < 5 or zlib.crc32(body) != int.from_bytes(data[:4], "little"):
        raise Corrupt("the checksum of a batch is wrong")
    found = []
    try:
        for names, rows, deflated in _unpacked.decode(body):
            inflate = zlib.decompressobj()
            size = 8 * rows * (2 + len(names))
            plain = inflate.decompress(deflated, size + 1)
            if len(plain) != size:
                raise Corrupt("a batch has another length than it says")
            numbers, at_ms = _numbers(plain[: 16 * rows], np.int64, 2, rows)
            values = _numbers(plain[16 * rows :], np.float64, len(names), rows)
            found.append(Table(tuple(names), numbers, at_ms, values))
    except (msgspec.DecodeError, TypeError, ValueError, zlib.error) as error:
        raise Corrupt(str(error)) from error
    return found


def of_subject(tables: Iterable[Table], number: int) -> list[Columns]:
    """Return the readings of one subject, in the order in which they were put."""
    found = []
    for table in tables:
        where = np.flatnonzero(table.numbers == number)
        if len(where):
            figures = dict(zip(table.names, table.values[:, where], strict=True))
            found.append(Columns(table.at_ms[where], figures))
    return found


def by_subject(tables: Sequence[Table]) -> dict[int, Columns]:
    """Return the readings of each subject, in the order in which they were put."""
    if not tables:
        return {}
    names = sorted({name for table in tables for name in table.names})
    rows = {name: row for row, name in enumerate(names)}
    numbers = np.concatenate([table.numbers for table in tables])
    at_ms = np.concatenate([table.at_ms for table in tables])
    values = np.full((len(names), len(numbers)), np.nan)
    begin = 0
    for table in tables:
        end = begin + len(table.numbers)
        values[[rows[name] for name in table.names], begin:end] = table.values
        begin = end
    order = np.argsort(numbers, kind="stable")
    numbers, at_ms, values = numbers[order], at_ms[order], values[:, order]
    edges = np.append(np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1)), len(numbers))
    found = {}
    for begin, end in pairwise(edges.tolist()):
        part = values[:, begin:end]
        known = ~np.isnan(part).all(axis=1)
        figures = {name: part[row] for row, name in enumerate(names) if known[row]}
        found[int(numbers[begin])] = Columns(at_ms[begin:end], figures)
    return found
