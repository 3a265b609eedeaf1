"""Identifiers: short, unique, and ordered by the time of their making.

The random part comes from a generator that is handed in, so that a simulation makes the same ids
again. An id sorts by creation (to the millisecond), which keeps new rows together in an index.
"""

import secrets
from collections.abc import Callable
from random import Random, SystemRandom

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nobody misreads it
_TIME_CHARS, _RANDOM_CHARS = 9, 11


class IdSource:
    """Makes ids such as vm-1hc3k5q8v2m9x4w7ze0d; 55 random bits beside 45 bits of time."""

    def __init__(self, wall_ms: Callable[[], int], random: Random | None = None) -> None:
        self._wall_ms = wall_ms
        self._random = random or SystemRandom()

    def new(self, kind: str) -> str:
        """Return a new id of a kind."""
        return f"{kind}-{_base32(self._wall_ms(), _TIME_CHARS)}" + _base32(
            self._random.getrandbits(5 * _RANDOM_CHARS), _RANDOM_CHARS
        )

    def many(self, kind: str, count: int) -> list[str]:
        """Return new ids of one moment in ascending order, with one draw for all of them."""
        prefix = f"{kind}-{_base32(self._wall_ms(), _TIME_CHARS)}"
        first = self._random.getrandbits(5 * _RANDOM_CHARS - 1)
        return [prefix + _base32(first + index, _RANDOM_CHARS) for index in range(count)]

    def secret(self) -> str:
        """Return 40 characters that nobody guesses."""
        if isinstance(self._random, SystemRandom):
            return secrets.token_hex(20)
        return f"{self._random.getrandbits(160):040x}"


def _base32(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        digits.append(_ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(digits))
