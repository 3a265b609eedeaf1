"""Numbers into few bytes, and back exactly: columns of a chunk.

A column of numbers that are all multiples of 1, 0.01 or 0.0001 (most are: bytes, thousandths,
percentages) is kept as integers: the first one, and then how much each differs from the one before,
divided by what all of that has in common. Other numbers are kept by the bits in which each differs
from the one before. Either way the bytes of equal weight are put beside each other and deflated.
Moments are kept by how their differences differ. NaN is a bit in a map of its own.

Raw chunks are packed column by column, so that one figure of a fortnight is read without the rest.
Roll-ups have many short columns, which are packed as one table: that is a tenth of the work.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Integers that a float has exactly.
_EXACT = 2.0**53
#: Ten to the power of this many digits behind the point is tried, in this order.
_DIGITS = (0, 2, 4)
_LEVEL = 6

_packed = msgspec.msgpack.Encoder()
_unpacked = msgspec.msgpack.Decoder(list[Any])


class Corrupt(ValueError):
    """Bytes that no column, batch or chunk can have."""


def pack(columns: dict[str, Floats], moments: dict[str, Ints]) -> bytes:
    """Return columns of one length as bytes that begin with their checksum."""
    length = len(next(iter(moments.values())))
    body = _packed.encode(
        [
            length,
            {name: _pack_moments(column) for name, column in moments.items()},
            {name: _pack_floats(column) for name, column in columns.items()},
        ]
    )
    return zlib.crc32(body).to_bytes(4, "little") + body


def pack_table(columns: dict[str, Floats], moments: dict[str, Ints]) -> bytes:
    """Return columns of one length, packed together, as bytes that begin with their checksum."""
    names = list(columns)
    table = np.stack([columns[name] for name in names], axis=1)
    known = ~np.isnan(table)
    gaps = b"" if known.all() else zlib.compress(np.packbits(known).tobytes(), _LEVEL)
    if gaps:
        table = _filled(table, known)
    digits = np.full(len(names), -1)
    scaled = np.zeros(table.shape)
    for each in _DIGITS:
        rounded = np.rint(table * 10.0**each)
        fits = (rounded / 10.0**each == table).all(axis=0) & (np.abs(rounded) < _EXACT).all(axis=0)
        fits &= digits < 0
        digits[fits], scaled[:, fits] = each, rounded[:, fits]
    ints = scaled.astype(np.int64)
    steps = np.diff(ints, axis=0)
    common = np.maximum(np.gcd.reduce(steps, axis=0), 1) if len(steps) else np.ones_like(ints[0])
    words = np.ascontiguousarray(_zigzag(steps // common).T).reshape(-1)
    apart = {
        names[place]: _pack_floats(columns[names[place]]) for place in np.flatnonzero(digits < 0)
    }
    body = _packed.encode(
        [
            len(table),
            {name: _pack_moments(column) for name, column in moments.items()},
            apart,
            [
                names, digits.tolist(), ints[0].tolist(), common.tolist(), *_shuffle(words), gaps
            ],
        ]
    )  # fmt: skip
    return zlib.crc32(body).to_bytes(4, "little") + body


def _filled(table: Floats, known: NDArray[np.bool_]) -> Floats:
    """Return a table in which what is unknown is what was known before it, or 0."""
    rows = np.where(known, np.arange(len(table))[:, None], 0)
    last = np.maximum.accumulate(rows, axis=0)
    return np.nan_to_num(np.take_along_axis(table, last, axis=0))


def _unpack_table(packed: list[Any], length: int, wanted: Sequence[str]) -> dict[str, Floats]:
    """Return the columns of a table that are wanted."""
    try:
        names, digits, first, common, width, data, gaps = packed
        places = [place for place, name in enumerate(names) if name in wanted]
        steps = _unzigzag(_unshuffle(width, data, (length - 1) * len(names)))
        steps = steps.reshape(len(names), length - 1)[places]
        ints = np.empty((len(places), length), dtype=np.int64)
        ints[:, 0] = np.array(first)[places]
        np.multiply(steps, np.array(common)[places, None], out=ints[:, 1:])
        values = np.cumsum(ints, axis=1) / (10.0 ** np.array(digits, np.float64))[places, None]
        if gaps:
            plain = np.frombuffer(zlib.decompress(gaps), np.uint8)
            known = np.unpackbits(plain, count=length * len(names)).reshape(length, len(names))
            values[known.T[places] == 0] = np.nan
    except (TypeError, ValueError, OverflowError, IndexError, zlib.error) as error:
        raise Corrupt(str(error)) from error
    return {names[place]: values[row] for row, place in enumerate(places)}


class Packed:
    """Columns as bytes, of which only those are unpacked that are asked for."""

    __slots__ = ("_columns", "_moments", "_table", "length")

    def __init__(self, data: bytes) -> None:
        body = memoryview(data)[4:]
        if len(data) < 5 or zlib.crc32(body) != int.from_bytes(data[:4], "little"):
            raise Corrupt("a checksum is wrong")
        try:
            self.length, self._moments, self._columns, *table = _unpacked.decode(body)
        except (msgspec.DecodeError, ValueError) as error:
            raise Corrupt(str(error)) from error
        self._table: list[Any] = table[0] if table else [[]]

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._table[0]) or list(self._columns)

    def moments(self, name: str) -> Ints:
        """Return a column of moments or numbers."""
        return _unpack_moments(self._moments[name], self.length)

    def columns(self, wanted: Sequence[str]) -> dict[str, Floats]:
        """Return the columns of these names, as far as there are such."""
        found = _unpack_table(self._table, self.length, wanted) if self._table[0] else {}
        for name in wanted:
            if (packed := self._columns.get(name)) is not None:
                found[name] = _unpack_floats(packed, self.length)
        return found


# Integers


def _shuffle(words: NDArray[np.uint64]) -> tuple[int, bytes]:
    """Return how many bytes each word takes, and those bytes deflated, by their weight."""
    highest = int(words.max()) if len(words) else 0
    width = (highest.bit_length() + 7) // 8
    if width == 0:
        return 0, b""
    planes = words.view(np.uint8).reshape(-1, 8)[:, :width].T
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
    return width, deflate.compress(planes.tobytes()) + deflate.flush()


def _unshuffle(width: int, data: bytes, length: int) -> NDArray[np.uint64]:
    words = np.zeros((length, 8), dtype=np.uint8)
    if width:
        inflate = zlib.decompressobj(-15)
        plain = inflate.decompress(data, width * length + 1)
        if not 1 <= width <= 8 or len(plain) != width * length:
            raise Corrupt("a column has another length than its chunk")
        words[:, :width] = np.frombuffer(plain, np.uint8).reshape(width, length).T
    return words.view(np.uint64).reshape(-1)


def _zigzag(values: Ints) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _unzigzag(words: NDArray[np.uint64]) -> Ints:
    return ((words >> np.uint64(1)) ^ (np.uint64(0) - (words & np.uint64(1)))).view(np.int64)


def _pack_ints(values: Ints) -> list[Any]:
    """Return first value, common divisor, width and bytes."""
    if len(values) < 2:
        return [int(values[0]) if len(values) else 0, 1, 0, b""]
    steps = np.diff(values)
    common = int(np.gcd.reduce(steps)) or 1
    if common > 1:
        steps //= common
    return [int(values[0]), common, *_shuffle(_zigzag(steps))]


def _unpack_ints(packed: list[Any], length: int) -> Ints:
    first, common, width, data = packed
    values = np.empty(length, dtype=np.int64)
    if length:
        values[0] = first
        np.multiply(_unzigzag(_unshuffle(width, data, length - 1)), common, out=values[1:])
        np.cumsum(values, out=values)
    return values


def _pack_moments(values: Ints) -> list[Any]:
    if len(values) < 2:
        return [int(values[0]) if len(values) else 0, [0, 1, 0, b""]]
    return [int(values[0]), _pack_ints(np.diff(values))]


def _unpack_moments(packed: list[Any], length: int) -> Ints:
    try:
        first, steps = packed
        values = np.empty(length, dtype=np.int64)
        if length:
            values[0] = first
            values[1:] = _unpack_ints(steps, length - 1)
            np.cumsum(values, out=values)
    except (TypeError, ValueError, OverflowError, zlib.error) as error:
        raise Corrupt(str(error)) from error
    return values


# Numbers


def _pack_floats(values: Floats) -> list[Any]:
    """Return digits behind the point or -1, integers or bits, and which are known if not all."""
    known = ~np.isnan(values)
    gaps = b""
    if not known.all():
        gaps = zlib.compress(np.packbits(known).tobytes(), _LEVEL)
        values = values[known]
    for digits in _DIGITS:
        scale = 10.0**digits
        scaled = np.rint(values * scale)
        if not len(values) or (
            np.abs(scaled).max() < _EXACT
            and np.array_equal(scaled / scale, values)
            and not (np.signbit(values) & (values == 0)).any()
        ):
            return [digits, _pack_ints(scaled.astype(np.int64)), len(values), gaps]
    bits = values.view(np.uint64).copy()
    bits[1:] ^= bits[:-1].copy()
    return [-1, [0, 1, *_shuffle(bits)], len(values), gaps]


def _unpack_floats(packed: list[Any], length: int) -> Floats:
    try:
        digits, inner, count, gaps = packed
        if not 0 <= count <= length:
            raise Corrupt("a column has more values than its chunk has moments")
        if digits >= 0:
            values: Floats = _unpack_ints(inner, count) / 10.0**digits
        else:
            bits = _unshuffle(inner[2], inner[3], count)
            values = np.bitwise_xor.accumulate(bits).view(np.float64) if count else np.empty(0)
        if not gaps:
            if count != length:
                raise Corrupt("a column has another length than its chunk")
            return values
        known = np.unpackbits(np.frombuffer(zlib.decompress(gaps), np.uint8), count=length).astype(
            np.bool_
        )
        whole = np.full(length, np.nan)
        whole[known] = values
    except (TypeError, ValueError, OverflowError, IndexError, zlib.error) as error:
        raise Corrupt(str(error)) from error
    return whole
