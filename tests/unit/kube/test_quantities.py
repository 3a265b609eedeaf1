"""Quantities mean what Kubernetes means by them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest
from roost.kube.base.quantities import bytes_quantity, parse_quantity

SIZES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9}


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("4Gi", 4 * 2**30), ("1.5Gi", 3 * 2**29), ("1e3", 1000), ("12E2", 1200),
     ("100k", 100_000), ("500m", 1), ("1001m", 2), (".5", 1), ("4GiB", 4 * 2**30)],
)  # fmt: skip
def test_a_quantity_is_a_whole_number_rounded_up(text: str, amount: int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    ("text", "milli"), [("2", 2000), ("500m", 500), ("0.1", 100), ("1500u", 2), ("1n", 1)]
)
def test_cores_are_read_in_thousandths(text: str, milli: int) -> None:
    assert parse_quantity(text, milli=True) == milli


@pytest.mark.parametrize("text", ["", "Gi", "4 G i", "1e", "four", "4Gb", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no quantity"):
        parse_quantity(text)


@given(st.integers(0, 2**48))
def test_bytes_come_back_as_they_were_written(amount: int) -> None:
    assert parse_quantity(bytes_quantity(amount)) == amount


@given(st.integers(0, 10**6), st.sampled_from(sorted(SIZES)))
def test_a_unit_is_a_factor(number: int, unit: str) -> None:
    assert parse_quantity(f"{number}{unit}") == number * SIZES[unit]
    thousandth = Decimal(number) / 1000
    assert parse_quantity(f"{thousandth}{unit}", milli=True) == number * SIZES[unit]
