"""Identifiers: short, unique, and ordered by the time of their making.

The random part comes from a generator that is handed in, so that a simulation makes the same ids
again. An id sorts by creation (to the millisecond), which keeps new rows together in an index.
"""

import os
import secrets
from collections import deque
from collections.abc import Callable
from random import Random, SystemRandom

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nobody misreads it
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
#: Turns any byte into a digit; eight bytes stand for each digit, so none is likelier than another.
_DIGIT_OF_BYTE = (_ALPHABET * 8).encode()
_TIME_CHARS, _RANDOM_CHARS = 9, 11


class IdSource:
    """Makes ids such as vm-1hc3k5q8v2m9x4w7ze0d; 55 random bits beside 45 bits of time."""

    def __init__(self, wall_ms: Callable[[], int], random: Random | None = None) -> None:
        self._wall_ms = wall_ms
        self._random = random
        self._pool: deque[str] = deque()  # random parts; several threads may take from it
        self._moment = (-1, "")  # the time that was written last, and how

    def new(self, kind: str) -> str:
        """Return a new id of a kind."""
        return f"{kind}-{self._time_part()}{self._random_part()}"

    def many(self, kind: str, count: int) -> list[str]:
        """Return new ids of one moment in ascending order, with one draw for all of them."""
        prefix = f"{kind}-{self._time_part()}"
        first = (self._random or SystemRandom()).getrandbits(5 * _RANDOM_CHARS - 1)
        ids: list[str] = []
        while len(ids) < count:  # the last two digits change each time, the others hardly ever
            at = first + len(ids)
            start = prefix + _base32(at >> 10, _RANDOM_CHARS - 2)
            low = at & 1023
            ids += [start + pair for pair in _PAIRS[low : low + count - len(ids)]]
        return ids

    def secret(self) -> str:
        """Return 40 characters that nobody guesses."""
        if self._random is None:
            return secrets.token_hex(20)
        return f"{self._random.getrandbits(160):040x}"

    def _time_part(self) -> str:
        wall_ms = self._wall_ms()
        known_ms, text = self._moment
        if known_ms != wall_ms:
            text = _base32(wall_ms, _TIME_CHARS)
            self._moment = wall_ms, text
        return text

    def _random_part(self) -> str:
        if self._random is not None:
            return _base32(self._random.getrandbits(5 * _RANDOM_CHARS), _RANDOM_CHARS)
        try:
            return self._pool.popleft()
        except IndexError:  # asked for in large pieces: a call for each id costs more
            digits = os.urandom(256 * _RANDOM_CHARS).translate(_DIGIT_OF_BYTE).decode()
            starts = range(_RANDOM_CHARS, len(digits), _RANDOM_CHARS)
            self._pool.extend(digits[at : at + _RANDOM_CHARS] for at in starts)
            return digits[:_RANDOM_CHARS]


def _base32(number: int, length: int) -> str:
    """Write a number in so many digits, two at a time."""
    pairs = [_PAIRS[number >> shift & 1023] for shift in range((length - 1) // 2 * 10, -1, -10)]
    return "".join(pairs)[-length:]
