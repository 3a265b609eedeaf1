"""Identifiers: short, unique, and ordered by the time of their making.

The random part comes from a generator that is handed in, so that a simulation makes the same ids
again. An id sorts by creation (to the millisecond), which keeps new rows together in an index.
"""

import os
import secrets
from collections.abc import Callable
from random import Random

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nobody misreads it
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_TIME_CHARS, _RANDOM_CHARS = 9, 11


class IdSource:
    """Makes ids such as vm-1hc3k5q8v2m9x4w7ze0d; 55 random bits beside 45 bits of time."""

    def __init__(self, wall_ms: Callable[[], int], random: Random | None = None) -> None:
        self._wall_ms = wall_ms
        self._random = random or _Pool()

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
        if isinstance(self._random, _Pool):
            return secrets.token_hex(20)
        return f"{self._random.getrandbits(160):040x}"


def _base32(number: int, length: int) -> str:
    """Write a number in so many digits, two at a time."""
    pairs = [_PAIRS[number >> shift & 1023] for shift in range((length - 1) // 2 * 10, -1, -10)]
    return "".join(pairs)[-length:]


class _Pool(Random):
    """The machine's randomness, asked for in large pieces: a call for each id costs more."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = b""
        self._at = 0

    def getrandbits(self, k: int, /) -> int:
        """Return so many random bits."""
        count = (k + 7) // 8
        if self._at + count > len(self._bytes):
            self._bytes, self._at = os.urandom(4096), 0
        self._at += count
        piece = self._bytes[self._at - count : self._at]
        return int.from_bytes(piece, "big") >> (8 * count - k)
