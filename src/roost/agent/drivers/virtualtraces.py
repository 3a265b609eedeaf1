"""Traces that virtual VMs play: a CSV file of how much cpu was used when, read once and bounded.

The columns are `time` (seconds) and `cpu` (share of what the VM asked for, 0 to 1); with a column
`name` one file has several traces. A value holds until the next one. A trace is played by the
clock on the wall from 1970 on, over and over: one of a day or a week begins with the UTC day, one
whose times are dates plays at those dates.
"""

import csv
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import InvalidRequest

#: The largest file, and the most rows of all traces in it.
MOST_BYTES, MOST_ROWS = 2**25, 500_000
#: The latest time, in the year 10,000, and the longest name.
MOST_TIME_S, MOST_NAME = 253_402_300_800, 128


@dataclass(frozen=True, slots=True)
class Trace:
    """When which share of its cpu a VM wanted; times are whole milliseconds and rise."""

    at_ms: tuple[int, ...]
    cpu: tuple[float, ...]

    @property
    def length_ms(self) -> int:
        """Return how long it plays: the last value holds as long as the one before it did."""
        if len(self.at_ms) == 1:
            return 1
        return 2 * self.at_ms[-1] - self.at_ms[-2] - self.at_ms[0]

    def at(self, at_ms: int) -> float:
        """Return the share at a moment on the wall."""
        first = self.at_ms[0]
        # Times within the first play of a trace are its own; around it the trace repeats.
        into = (at_ms - first) % self.length_ms + first
        return self.cpu[bisect_right(self.at_ms, into) - 1]


def read_traces(path: Path) -> dict[str, Trace]:
    """Read a file of traces; blocks. Of a file without names the one trace has the name ""."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidRequest(f"{path} is larger than {MOST_BYTES >> 20} MiB")
        with path.open(newline="", encoding="utf-8") as text:
            return _traces(path, csv.reader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest(f"{path} cannot be read as a trace: {error}") from error


def _traces(path: Path, rows: Iterator[list[str]]) -> dict[str, Trace]:
    header: list[str] = next(rows, [])
    if not {"time", "cpu"} <= set(header) <= {"time", "cpu", "name"}:
        raise InvalidRequest(f"{path} has the columns {header}, not time, cpu and perhaps name")
    time, cpu = header.index("time"), header.index("cpu")
    name = header.index("name") if "name" in header else None
    found: dict[str, tuple[list[int], list[float]]] = {}
    for number, row in enumerate(rows, 1):
        where = f"row {number} of {path}"
        if number > MOST_ROWS:
            raise InvalidRequest(f"{path} has more than {MOST_ROWS:,} rows")
        if len(row) != len(header):
            raise InvalidRequest(f"{where} has {len(row)} cells, not {len(header)}")
        called = row[name] if name is not None else ""
        if len(called) > MOST_NAME:
            raise InvalidRequest(f"{where}: a name is at most {MOST_NAME} characters long")
        times, shares = found.setdefault(called, ([], []))
        at_ms = round(1000 * _number(row[time], MOST_TIME_S, "time", where))
        if times and at_ms <= times[-1]:
            raise InvalidRequest(f"{where}: its time is not after the one before")
        times.append(at_ms)
        shares.append(_number(row[cpu], 1.0, "cpu", where))
    if not found:
        raise InvalidRequest(f"{path} has no rows")
    return {called: Trace(tuple(times), tuple(cpu)) for called, (times, cpu) in found.items()}


def _number(text: str, most: float, what: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= most:  # NaN is not
        raise InvalidRequest(f"{where}: {what} {text[:40]!r} is not a number from 0 to {most:,.0f}")
    return value
