"""Amounts as people type them, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest
from roost.base.units import (
    GIB,
    MAX_AMOUNT,
    exact_bytes,
    exact_cpu,
    format_bytes,
    format_cpu,
    parse_bytes,
    parse_count,
    parse_cpu,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("8GiB", 8 * GIB),
        ("1.5 GiB", 3 * GIB // 2),
        ("500GB", 500 * 10**9),
        ("0", 0),
        ("17B", 17),
        ("256TiB", MAX_AMOUNT),
    ],
)
def test_sizes_are_read_exactly(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize(("text", "milli"), [("4", 4000), ("0.5", 500), ("250m", 250)])
def test_cpu_is_read_in_millicores(text: str, milli: int) -> None:
    assert parse_cpu(text) == milli


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("8Gb", "unknown unit 'Gb'"),
        ("8", "has no unit"),
        ("-1GiB", "negative"),
        ("NaN", "not a number"),
        ("nanGiB", "not a number"),
        ("1e9GiB", "not a number"),
        ("257TiB", "more than 256 TiB"),
        ("0.3B", "finer than one unit"),
        ("", "not a number"),
    ],
)
def test_what_is_no_size_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_bytes(text)


def test_an_unknown_unit_is_answered_with_the_likely_ones() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_bytes("8Gb")
    assert caught.value.hint == "Maybe 8GiB or 8GB?"


@pytest.mark.parametrize(
    ("text", "says"), [("4GHz", "unknown unit"), ("-1", "negative"), ("0.0001", "finer")]
)
def test_what_is_no_cpu_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_cpu(text)


def test_a_count_takes_no_unit() -> None:
    with pytest.raises(InvalidRequest, match="takes no unit"):
        parse_count("3GiB")


@given(st.integers(0, MAX_AMOUNT))
def test_exact_texts_read_back_as_the_same_amount(amount: int) -> None:
    assert parse_bytes(exact_bytes(amount)) == amount
    assert parse_cpu(exact_cpu(amount)) == amount or amount > MAX_AMOUNT


def test_amounts_are_shown_with_at_most_one_decimal() -> None:
    assert [format_bytes(n) for n in (0, 1536, 3 * GIB // 2, -2 * GIB)] == [
        "0 B",
        "1.5 KiB",
        "1.5 GiB",
        "-2 GiB",
    ]
    assert [format_cpu(n) for n in (4000, 250)] == ["4", "0.25"]
