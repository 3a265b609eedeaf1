"""Seconds that cores were busy or idle and that tasks waited, as node-exporter counts them.

Use is constant between two events, so each total is a sum of (rate x time) that is brought up to
date when the rate changes and can be read at any moment, exactly. Everything is a whole number:
a total never goes back, and the modes of a node's cores add up to cores x time to the last digit.

Pure: time is an argument.
"""

from typing import NamedTuple

#: Totals are in millionths x nanoseconds.
UNITS_PER_SECOND = 10**15
#: Of busy time, how much is the guests' own, in fifths; the rest is the system's.
_USER_FIFTHS = 3


class Rates(NamedTuple):
    """What a node does from some moment on, in millionths."""

    cores: int = 0  # there
    busy: int = 0  # of them
    cpu_waiting: int = 0  # share of time in which something waits
    memory_waiting: int = 0


class Totals(NamedTuple):
    """What came together so far, in millionths x nanoseconds."""

    idle: int
    user: int
    system: int
    cpu_waiting: int
    memory_waiting: int


class Counter:
    """The totals of one node since it was first seen."""

    __slots__ = ("_busy", "_cores", "_cpu_waiting", "_memory_waiting", "_rates", "_since_ns")

    def __init__(self, now_ns: int, rates: Rates = Rates()) -> None:  # noqa: B008 - immutable
        self._since_ns = now_ns
        self._rates = rates
        self._cores = self._busy = self._cpu_waiting = self._memory_waiting = 0

    def change(self, now_ns: int, rates: Rates) -> None:
        """Go on with other rates from this moment; a moment before the last one counts as it."""
        past = now_ns - self._since_ns
        if past > 0:
            was = self._rates
            self._cores += was.cores * past
            self._busy += was.busy * past
            self._cpu_waiting += was.cpu_waiting * past
            self._memory_waiting += was.memory_waiting * past
            self._since_ns = now_ns
        self._rates = rates

    def read(self, now_ns: int) -> Totals:
        """Return the totals at a moment; nothing changes."""
        past, rates = max(now_ns - self._since_ns, 0), self._rates
        busy = self._busy + rates.busy * past
        user = busy * _USER_FIFTHS // 5
        return Totals(
            self._cores + rates.cores * past - busy,
            user,
            busy - user,
            self._cpu_waiting + rates.cpu_waiting * past,
            self._memory_waiting + rates.memory_waiting * past,
        )
