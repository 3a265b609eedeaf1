"""Amounts as people type them, and back: "8GiB", "250m", "1.5".

Everything inside roost is a whole number: bytes, millicores, thousandths. This module is the only
place where text becomes such a number. It refuses what it does not know ("8Gb") instead of
guessing: a factor of eight in a VM's memory is not a detail.
"""

import re
from decimal import Decimal
from functools import lru_cache

from roost.base.errors import InvalidRequest

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

#: Largest amount of anything: 256 TiB in bytes, and the same number of millicores. Scores are
#: computed in 64 bits; the fixed-point division in the kernels is exact up to here.
MAX_AMOUNT = 2**48

_BYTE_UNITS = {
    "B": 1,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%µ]*)\s*\Z")


def _split(text: str, what: str) -> tuple[Decimal, str]:
    match = _NUMBER_AND_UNIT.match(text)
    if match is None:
        raise InvalidRequest(f"{what} {text!r} is not a number with a unit", value=text)
    return Decimal(match[1]), match[2]


def _whole(amount: Decimal, text: str, what: str) -> int:
    if amount < 0:
        raise InvalidRequest(f"{what} {text!r} is negative", value=text)
    if amount != amount.to_integral_value():
        raise InvalidRequest(f"{what} {text!r} is finer than one unit", value=text)
    if amount > MAX_AMOUNT:
        raise InvalidRequest(f"{what} {text!r} is more than 256 TiB", value=text)
    return int(amount)


@lru_cache(maxsize=4096)  # a service reads the same few sizes again and again
def parse_bytes(text: str, what: str = "size") -> int:
    """Return the bytes that a text such as "8GiB" or "500 GB" means."""
    number, unit = _split(text, what)
    if unit not in _BYTE_UNITS:
        if not unit and number == 0:
            return 0
        known = " ".join(_BYTE_UNITS)
        close = [u for u in _BYTE_UNITS if unit and u[0].lower() == unit[0].lower()]
        near = [f"{number}{each}" for each in close] or ([] if unit else [f"{number}GiB"])
        hint = f"Maybe {' or '.join(near)}?" if near else None
        problem = f"has the unknown unit {unit!r}" if unit else "has no unit"
        raise InvalidRequest(f"{what} {text!r} {problem}; known units: {known}", hint=hint)
    return _whole(number * _BYTE_UNITS[unit], text, what)


@lru_cache(maxsize=4096)
def parse_cpu(text: str, what: str = "cpu") -> int:
    """Return millicores: "4" is four cores, "250m" a quarter of one."""
    number, unit = _split(text, what)
    if unit not in ("", "m"):
        raise InvalidRequest(
            f"{what} {text!r} has the unknown unit {unit!r}",
            hint="Maybe cores without a unit (4, 0.5) or millicores (250m).",
        )
    return _whole(number if unit == "m" else number * 1000, text, what)


def parse_count(text: str, what: str = "count") -> int:
    """Return a whole number without a unit."""
    number, unit = _split(text, what)
    if unit:
        raise InvalidRequest(f"{what} {text!r} takes no unit", value=text)
    return _whole(number, text, what)


def format_bytes(amount: int) -> str:
    """Return bytes in the largest binary unit that needs at most one decimal."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if amount >= size:
            tenths = round(amount * 10 / size)
            whole, rest = divmod(tenths, 10)
            return f"{sign}{whole}.{rest} {unit}" if rest else f"{sign}{whole} {unit}"
    return f"{sign}{amount} B"


def exact_bytes(amount: int) -> str:
    """Return bytes so that `parse_bytes` gives back exactly the same number."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return f"{amount}B"


def format_cpu(milli: int) -> str:
    """Return millicores as cores, without needless decimals."""
    return f"{milli / 1000:g}" if milli % 1000 else str(milli // 1000)


def exact_cpu(milli: int) -> str:
    """Return millicores so that `parse_cpu` gives back exactly the same number."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)
