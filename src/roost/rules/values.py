"""Values that expressions have when they are evaluated, and the error value.

A value is None, a bool, an int of 64 bits, a float, a str, a `Duration`, a list (any sequence that
is no str) or a map (any Mapping; records such as `host` are maps too). `Trouble` is CEL's error
value: it is returned, never raised, because `&&` and `||` may still absorb it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roost.rules.positions import NOWHERE, Span

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in whole nanoseconds."""

    ns: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """The error value: what went wrong, and where in the rule."""

    message: str
    span: Span = NOWHERE

    def __bool__(self) -> bool:
        """Refuse to be taken for true or false."""
        raise TypeError(f"an error value is neither true nor false: {self.message}")


class Unanswerable(Exception):
    """A function has no answer for these values; the interpreter makes it an error value."""


Value = None | bool | int | float | str | Duration | Sequence["Value"] | Mapping["Value", "Value"]


def type_name(value: object) -> str:
    """Return the language's own word for the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Duration):
        return "duration"
    return "map" if isinstance(value, Mapping) else "list"
