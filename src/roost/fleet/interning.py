"""Small tables that turn words and values into numbers, given out in order and never reused."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_NOTHING = object()


class Interned(Generic[T]):
    """Values numbered in the order they were first seen."""

    __slots__ = ("_last", "_last_number", "_numbers", "values")

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}
        # What is placed is then charged: the same object is asked for twice in a row, and to hash
        # one that is made of many costs more than the rest of either.
        self._last: object = _NOTHING
        self._last_number = -1

    def number(self, value: T) -> int:
        """Return the value's number, giving it one if it is new."""
        if value is self._last:
            return self._last_number
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        self._last, self._last_number = value, found
        return found

    def find(self, value: T) -> int:
        """Return the value's number, or -1 if it has none."""
        return self._numbers.get(value, -1)

    def copy(self) -> "Interned[T]":
        """Return an independent table with the same numbers."""
        other: Interned[T] = Interned()
        other.values = list(self.values)
        other._numbers = dict(self._numbers)
        return other

    def __getitem__(self, number: int) -> T:
        return self.values[number]

    def __len__(self) -> int:
        return len(self.values)
