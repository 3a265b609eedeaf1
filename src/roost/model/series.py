"""Series as nouns: who was measured, what by which name, how fine, and readings in columns.

An agent's sample is one reading of one subject. The store keeps its figures by name; rates of
counters are figures too, made from the readings when they are read. What is unknown is NaN in a
column and absent from a reading, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["vm", "host"]

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000


class Subject(NamedTuple):
    """Who was measured: a VM by its id, or a host by its name."""

    kind: Kind
    name: str


class Resolution(Enum):
    """How fine a series is: readings as they came, or summed up over so many milliseconds."""

    RAW = "raw"
    FIVE_MINUTES = "5m"
    HOUR = "1h"
    DAY = "1d"

    @property
    def bucket_ms(self) -> int:
        """Return the length of what one row sums up; 0 for readings as they came."""
        return _BUCKETS[self]


_BUCKETS = {
    Resolution.RAW: 0,
    Resolution.FIVE_MINUTES: 5 * MINUTE_MS,
    Resolution.HOUR: HOUR_MS,
    Resolution.DAY: DAY_MS,
}

#: What a row that sums readings up has of each figure, as `cpu_milli.max`.
STATISTICS = ("mean", "max", "p95")

#: Figures that grow from a start at 0 and begin anew with a new process; their rates are figures of
#: the name with `_per_s`.
COUNTERS = frozenset(
    {
        "disk_flushes", "disk_read_bytes", "disk_reads", "disk_write_bytes", "disk_writes",
        "guest_major_faults", "guest_swap_in_bytes", "guest_swap_out_bytes",
        "net_received_bytes", "net_received_packets", "net_sent_bytes", "net_sent_packets",
    }
)  # fmt: skip
#: Figures that say how much there is now.
GAUGES = frozenset(
    {
        "cpu_milli", "memory_bytes", "disk_bytes",
        "balloon_bytes", "dirty_bytes_per_s", "guest_available_bytes", "guest_cache_bytes",
        "guest_free_bytes", "guest_resident_bytes", "guest_total_bytes", "rss_bytes",
        "psi_cpu_full_avg10", "psi_cpu_some_avg10", "psi_cpu_some_avg60",
        "psi_io_full_avg10", "psi_io_some_avg10", "psi_io_some_avg60",
        "psi_memory_full_avg10", "psi_memory_some_avg10", "psi_memory_some_avg60",
    }
)  # fmt: skip
#: Every figure that is kept. The list is closed: names are what agents send, and agents may lie.
FIGURES = COUNTERS | GAUGES
#: What a store notes beside a reading: how many values and readings it has dropped or put in order
#: since the reading before. Nobody sends these, and they are told only to who asks by name.
NOT_FINITE, NEGATIVE, JUMPS = "cleaned_not_finite", "cleaned_negative", "cleaned_jumps"
DUPLICATES, OUT_OF_ORDER = "cleaned_duplicates", "cleaned_out_of_order"
NOTES = frozenset({NOT_FINITE, NEGATIVE, JUMPS, DUPLICATES, OUT_OF_ORDER})
#: What the rates of counters are called, by the counter.
RATES = {counter: f"{counter}_per_s" for counter in sorted(COUNTERS)}
#: Everything that can be asked for.
ASKED = FIGURES | frozenset(RATES.values())


class Reading(NamedTuple):
    """What was measured of one subject at one moment, by the names of figures."""

    subject: Subject
    at_ms: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Readings of one subject in the order of time: moments, and a column for each figure.

    Of roll-ups `at_ms` is where each bucket begins, and columns are called `cpu_milli.mean`.
    """

    at_ms: "NDArray[np.int64]"
    figures: "Mapping[str, NDArray[np.float64]]"

    def __len__(self) -> int:
        return len(self.at_ms)


@dataclass(frozen=True, slots=True)
class Kept:
    """For how many days readings and roll-ups are kept."""

    raw_days: int = 7
    five_minutes_days: int = 60
    hour_days: int = 400
    day_days: int = 3660

    def days(self, resolution: Resolution) -> int:
        """Return for how many days this resolution is kept."""
        return {
            Resolution.RAW: self.raw_days,
            Resolution.FIVE_MINUTES: self.five_minutes_days,
            Resolution.HOUR: self.hour_days,
            Resolution.DAY: self.day_days,
        }[resolution]


class Put(NamedTuple):
    """What became of readings that were put into a store."""

    kept: int
    left_out: int  # too old, from the future, or nothing in it that is known
