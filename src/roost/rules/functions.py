"""Functions of the rule language on plain values: what they accept, and what they return.

The checker reads the signatures, the interpreter calls the implementations. A function that cannot
answer raises `Unanswerable`, which the interpreter turns into the error value.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from roost.base.errors import InvalidRequest
from roost.base.units import parse_cpu
from roost.rules.patterns import matches
from roost.rules.types import BOOL, DOUBLE, DURATION, DYN, INT, STRING, Type, list_of, map_of
from roost.rules.values import INT_MAX, INT_MIN, Duration, Unanswerable


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function: whether behind a dot, the types it takes, the type it gives."""

    member: bool
    takes: tuple[Type, ...]
    gives: Type
    call: Callable[..., Any]


_QUANTITY = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s?([A-Za-z]*)\Z", re.ASCII)
_FACTORS: dict[str, int] = {"": 1, "B": 1, "k": 10**3, "kB": 10**3, "K": 10**3}
for _power, _letter in enumerate("KMGTPE", 1):
    _FACTORS[f"{_letter}i"] = _FACTORS[f"{_letter}iB"] = 1024**_power
    if _letter != "K":
        _FACTORS[_letter] = _FACTORS[f"{_letter}B"] = 1000**_power

#: The units of a quantity.
QUANTITIES = tuple(_FACTORS)

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")
_NANOSECONDS = {
    "h": 3600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "ns": 1,
}


#: Characters of a text that means a number.
MAX_NUMBER = 64


def _short(text: str) -> str:
    """Return the text of a number, or refuse one that is longer than any."""
    if len(text) > MAX_NUMBER:
        raise Unanswerable(
            f"a number or duration has at most {MAX_NUMBER} characters, and this has {len(text)}"
        )
    return text


@lru_cache(maxsize=1024)
def quantity(text: str) -> int:
    """Return the whole number that "64Gi", "64GiB", "500M" or "12" means."""
    match = _QUANTITY.match(_short(text))
    if match is None:
        raise Unanswerable(f"{text!r} is not a number with a unit, such as 64Gi")
    factor = _FACTORS.get(match[2])
    if factor is None:
        raise Unanswerable(
            f"{text!r} has the unknown unit {match[2]!r}; known are Ki Mi Gi Ti Pi and k M G T P"
        )
    number = Decimal(match[1]) * factor
    if number != number.to_integral_value():
        raise Unanswerable(f"{text!r} is no whole number of units")
    return _int64(int(number))


def cores(text: str) -> int:
    """Return the millicores that "4", "0.5" or "250m" means."""
    try:
        return parse_cpu(_short(text))
    except InvalidRequest as error:
        raise Unanswerable(error.message) from error


@lru_cache(maxsize=1024)
def duration(text: str) -> Duration:
    """Return the duration that "1h30m", "90s" or "-1.5h" means."""
    _short(text)
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    total, position = Decimal(0), 0
    while position < len(rest):
        match = _DURATION.match(rest, position)
        if match is None:
            break
        total += Decimal(match[1]) * _NANOSECONDS[match[2]]
        position = match.end()
    if not rest or position < len(rest):
        raise Unanswerable(f"{text!r} is not a duration, such as 10m or 1h30m")
    return Duration(_int64(sign * int(total)))


def _int64(number: int) -> int:
    if not INT_MIN <= number <= INT_MAX:
        raise Unanswerable("the number does not fit into 64 bits")
    return number


def _to_int(value: Any) -> int:
    if isinstance(value, float):
        if not -(2.0**63) < value < 2.0**63:
            raise Unanswerable(f"{value} does not fit into 64 bits")
        return int(value)
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]{1,24}", _short(value), re.ASCII):
            raise Unanswerable(f"{value!r} is not a whole number")
        return _int64(int(value))
    return int(value)


def _to_double(value: Any) -> float:
    try:
        return float(_short(value) if isinstance(value, str) else value)
    except ValueError:
        raise Unanswerable(f"{value!r} is not a number") from None


def _to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_LIST, _MAP = list_of(DYN), map_of(DYN, DYN)

#: Every function but the macros. The interpreter knows compiled patterns, and asks `matches` last.
FUNCTIONS: Mapping[str, tuple[Overload, ...]] = {
    "size": tuple(
        Overload(member, (kind,), INT, len)
        for kind in (STRING, _LIST, _MAP)
        for member in (False, True)
    ),
    "startsWith": (Overload(True, (STRING, STRING), BOOL, str.startswith),),
    "endsWith": (Overload(True, (STRING, STRING), BOOL, str.endswith),),
    "contains": (Overload(True, (STRING, STRING), BOOL, str.__contains__),),
    "matches": (
        Overload(True, (STRING, STRING), BOOL, matches),
        Overload(False, (STRING, STRING), BOOL, matches),
    ),
    "quantity": (Overload(False, (STRING,), INT, quantity),),
    "cores": (Overload(False, (STRING,), INT, cores),),
    "duration": (Overload(False, (STRING,), DURATION, duration),),
    "int": tuple(Overload(False, (kind,), INT, _to_int) for kind in (INT, DOUBLE, STRING)),
    "double": tuple(Overload(False, (kind,), DOUBLE, _to_double) for kind in (INT, DOUBLE, STRING)),
    "string": tuple(Overload(False, (kind,), STRING, _to_string) for kind in (STRING, INT, BOOL)),
}
