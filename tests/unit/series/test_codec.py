"""Columns as bytes: they come back to the bit, and bytes that are broken are refused."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.series import codec
from roost.series.codec import Corrupt, Packed, pack, pack_table
from tests.turns import draws_in_turn

#: What agents read: whole numbers, hundredths, anything, and what is unknown.
VALUES = (
    st.integers(0, 2**52).map(float)
    | st.integers(0, 10_000).map(lambda n: n / 100)
    | st.floats(0, 1e18)
    | st.just(float("nan"))
)
COLUMNS = st.lists(st.lists(VALUES, min_size=6, max_size=6), min_size=1, max_size=4)
MOMENTS = st.lists(st.integers(0, 2**53), min_size=6, max_size=6)


def came_back(columns: list[list[float]], moments: list[int], *, table: bool) -> None:
    given = {f"c{place}": np.array(column) for place, column in enumerate(columns)}
    packing = pack_table if table else pack
    packed = Packed(packing(given, {"at_ms": np.array(moments)}))
    assert packed.moments("at_ms").tolist() == moments
    found = packed.columns(list(given))
    for name, values in given.items():
        np.testing.assert_array_equal(found[name], values)
        np.testing.assert_array_equal(packed.columns([name])[name], values)


@draws_in_turn(300)
@given(COLUMNS, MOMENTS, st.booleans())
def test_columns_come_back_to_the_bit(
    columns: list[list[float]], moments: list[int], table: bool
) -> None:
    came_back(columns, moments, table=table)


def test_a_build_that_rounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec.np, "array_equal", lambda one, two: True)
    with pytest.raises(AssertionError):
        came_back([[0.123456, 1, 2, 3, 4, 5]], list(range(6)), table=False)


@pytest.mark.parametrize("length", [1, 2, 480])
@pytest.mark.parametrize("table", [False, True])
def test_every_length_comes_back(length: int, table: bool) -> None:
    came_back([[float(n * n) for n in range(length)]], list(range(length)), table=table)


def test_a_regular_series_takes_two_bytes_a_point() -> None:
    random = np.random.default_rng(1)
    moments = 1_793_923_200_000 + 15_000 * np.arange(480) + random.integers(-5, 6, 480)
    cpu = np.round(2000 + random.normal(0, 200, 480))
    rest = {f"c{place}": cpu + place for place in range(9)}
    assert len(pack({"cpu": cpu, **rest}, {"at_ms": moments})) / 4800 < 2


@pytest.mark.parametrize("table", [False, True])
def test_every_broken_byte_is_noticed(table: bool) -> None:
    data = (pack_table if table else pack)(
        {"cpu": np.arange(20.0)}, {"at_ms": np.arange(20, dtype=np.int64)}
    )
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x40
        with pytest.raises(Corrupt):
            Packed(bytes(broken))
    for cut in range(len(data)):
        with pytest.raises(Corrupt):
            Packed(data[:cut])


def test_a_forged_column_cannot_be_larger_than_it_says() -> None:
    bomb = zlib.compress(bytes(10_000_000))[2:-4]
    body = codec._packed.encode([3, {}, {"cpu": [0, [0, 1, 1, bomb], 3, b""]}])
    packed = Packed(zlib.crc32(body).to_bytes(4, "little") + body)
    with pytest.raises(Corrupt):
        packed.columns(["cpu"])
